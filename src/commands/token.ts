import type { Env } from '../config/files/interpolate.ts'
import { findToken } from '../gateway/control-token.ts'
import { DEFAULT_CONTROL } from './chaos/control.ts'
import type { Output } from './start.ts'
import { explained, parsed } from './wrap/arguments.ts'

const options = {
  control: { type: 'string', default: DEFAULT_CONTROL },
  help: { type: 'boolean', short: 'h' },
} as const

const usage = `breakwater token [--control URL]

  Prints the control token that a running gateway made for its own user, as for
  curl -X POST -H "authorization: Bearer $(breakwater token)" ${DEFAULT_CONTROL}/admin/reload
  One that the config sets (gateway.controlToken) is in no file, and not printed.

  --control URL         the control port, on loopback (default: ${DEFAULT_CONTROL})`

/** `breakwater token`: resolves to the exit code; 1 when there is no token to print. */
export async function token(args: readonly string[], out: Output, env: Env): Promise<number> {
  const given = parsed(args, options)
  if (!given.ok || given.values.help === true) return explained(given, usage, out)
  const { control } = given.values
  const misused = (message: string) => explained({ ok: false, message }, usage, out)
  if (given.positionals.length > 0) return misused(`unexpected argument "${given.positionals[0]}"`)
  if (!/^https?:\/\/[^/]/.test(control) || !URL.canParse(control))
    return misused(`--control must be a URL such as ${DEFAULT_CONTROL}, not "${control}"`)
  const found = await findToken(control, env)
  if (found.ok) out.stdout(found.token)
  else out.stderr(`breakwater: no control token: ${found.why}`)
  return found.ok ? 0 : 1
}
