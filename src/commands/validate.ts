import type { Env } from '../config/files/interpolate.ts'
import { formatIssue } from '../config/issues/issues.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema/schema.ts'
import { plain } from '../telemetry/colours.ts'
import { Misuse, optionLines, type Output, runCommand } from './arguments.ts'
import { configNames, findConfig, noConfig } from './find-config.ts'

const options = {
  config: { kind: 'text', value: 'FILE', about: 'the same' },
} as const

const usage = `breakwater validate [FILE]

  Checks a config and prints all that is wrong with it, with lines; FILE is the first of
  ${configNames.join(', ')} unless given. Exit code 0 when it can be used, else 1.

${optionLines(options)}`

/** `breakwater validate [FILE]`: checks a config and prints all that is wrong with it. Resolves to the exit code. */
export function validate(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options }, out, async (values, [named, ...rest]) => {
    const [extra] = named !== undefined && values.config !== undefined ? [named] : rest
    if (extra !== undefined) throw new Misuse(`one config at a time: what is "${extra}"?`)
    const file = named ?? values.config ?? (await findConfig(process.cwd()))
    if (file !== undefined) return check(file, out, env)
    out.stderr(`breakwater: ${noConfig}`)
    return 1
  })
}

async function check(file: string, out: Output, env: Env): Promise<number> {
  const loaded = await loadConfig(file, env)
  for (const issue of loaded.ok ? loaded.warnings : loaded.errors) out.stderr(formatIssue(issue))
  if (loaded.ok) out.stdout(`${file} is ${(out.paint ?? plain)('good', 'valid')}: ${summary(loaded.config)}`)
  else out.stderr(`${file} is not valid: ${count(loaded.errors.length, 'error')}`)
  return loaded.ok ? 0 : 1
}

function summary({ mcpServers, policies }: Config): string {
  const servers = Object.values(mcpServers)
  const disabled = servers.filter((server) => server.disabled).length
  const parts = [count(servers.length, 'server') + (disabled === 0 ? '' : ` (${disabled} disabled)`)]
  if (policies.overrides.length > 0) parts.push(count(policies.overrides.length, 'policy override'))
  return parts.join(', ')
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
