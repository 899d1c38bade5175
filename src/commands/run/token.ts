import type { Env } from '../../config/files/interpolate.ts'
import { findToken } from '../../gateway/control-token.ts'
import { DEFAULT_CONTROL } from '../shared/control.ts'
import { control as controlOption, optionLines, type Output, runCommand } from '../shared/arguments.ts'

const options = { control: { ...controlOption.control, about: 'the control port, on loopback' } } as const

const usage = `breakwater token [--control URL]

  Prints the control token created by a running gateway for its own user, for example for
  curl -X POST -H "authorization: Bearer $(breakwater token)" ${DEFAULT_CONTROL}/admin/reload
  A token from the config (gateway.controlToken) is not printed.

${optionLines(options)}`

/** `breakwater token`: resolves to the exit code; 1 when there is no token to print. */
export function token(args: readonly string[], out: Output, env: Env): Promise<number> {
  const asked = { usage, options, positionals: [] }
  return runCommand(args, asked, out, async ({ control }) => {
    const found = await findToken(control, env)
    if (found.ok) out.stdout(found.token)
    else out.stderr(`breakwater: no control token: ${found.why}`)
    return found.ok ? 0 : 1
  })
}
