import type { Env } from '../../config/files/interpolate.ts'
import { createHash } from 'node:crypto'
import { findToken, newControlToken } from '../../gateway/control-token.ts'
import { DEFAULT_CONTROL } from '../../gateway/control-address.ts'
import { control as controlOption, optionLines, type Output, runCommand } from '../shared/arguments.ts'

const options = {
  control: { ...controlOption.control, about: 'the control port, on loopback' },
  new: { kind: 'flag', about: 'prints a new token for an agent of the control MCP server, and its SHA-256' },
} as const

const usage = `breakwater token [--control URL]
       breakwater token --new

  Prints the control token created by a running gateway for its own user, for example for
  curl -X POST -H "authorization: Bearer $(breakwater token)" ${DEFAULT_CONTROL}/admin/reload
  A token from the config (gateway.controlToken) is not printed.
  With --new: a token for gateway.controlMcp.tokens. The config has only its SHA-256; the agent gets the token.

${optionLines(options)}`

/** `breakwater token`: resolves to the exit code; 1 when there is no token to print. */
export function token(args: readonly string[], out: Output, env: Env): Promise<number> {
  const asked = { usage, options, positionals: [] }
  return runCommand(args, asked, out, async ({ control, new: isNew }) => {
    if (isNew) {
      const fresh = newControlToken()
      out.stderr(
        `breakwater: the SHA-256 for the config is ${createHash('sha256').update(fresh).digest('hex')}`,
      )
      out.stdout(fresh)
      return 0
    }
    const found = await findToken(control, env)
    if (found.ok) out.stdout(found.token)
    else out.stderr(`breakwater: no control token: ${found.why}`)
    return found.ok ? 0 : 1
  })
}
