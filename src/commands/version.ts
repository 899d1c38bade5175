import { version as ofPackage } from '../protocol/identity.ts'
import { type Output, runCommand } from './shared/arguments.ts'

const usage = `breakwater version

  Prints the version of this program.`

/** `breakwater version`, also `--version` and `-v`. Resolves to the exit code. */
export function version(args: readonly string[], out: Output): Promise<number> {
  return runCommand(args, { usage, options: {}, positionals: [] }, out, () => {
    out.stdout(ofPackage)
    return Promise.resolve(0)
  })
}
