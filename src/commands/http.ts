import type { Env } from '../config/files/interpolate.ts'
import type { Output } from './start.ts'
import { explained, parsed } from './wrap/arguments.ts'
import { reportFaults } from './wrap/report.ts'
import { untilSignal } from './wrap/signals.ts'
import { startWrapped, WRAPPED } from './wrap/wrapped.ts'

const options = {
  upstream: { type: 'string' },
  port: { type: 'string', default: '8900' },
  plan: { type: 'string' },
  strict: { type: 'boolean', default: false },
  'log-level': { type: 'string', default: 'warn' },
  help: { type: 'boolean', short: 'h' },
} as const

const usage = `breakwater http --upstream URL [--plan FILE] [--strict] [--port PORT]

  An MCP server over HTTP, on loopback only, that is the one at URL with the whole mesh around it.

  --upstream URL        the MCP endpoint to wrap
  --port PORT           0 is any free one (default: 8900)
  --plan FILE           faults: a plan, a block "chaos", or a plan of mcp-chaos or mcp-chaos-monkey
  --strict              calls fail when the engine of the faults does
  --log-level LEVEL     trace, debug, info, warn, error or silent; on standard error (default: warn)`

/** `breakwater http`: runs until SIGTERM or SIGINT. Resolves to the exit code. */
export async function http(args: readonly string[], out: Output, env: Env): Promise<number> {
  const given = parsed(args, options)
  if (!given.ok || given.values.help === true) return explained(given, usage, out)
  const { values, positionals } = given
  const misused = (message: string) => explained({ ok: false, message }, usage, out)
  const { upstream, port, plan, strict, 'log-level': logLevel } = values
  if (positionals.length > 0) return misused(`unexpected argument "${positionals[0]}"`)
  if (upstream === undefined) return misused('which endpoint? --upstream is missing')
  if (!(/^\d{1,5}$/.test(port) && Number(port) < 65_536))
    return misused('--port must be a number from 0 to 65535')
  const gateway = await startWrapped(
    {
      plan,
      strict,
      logLevel,
      server: { url: upstream },
      gateway: { listen: `127.0.0.1:${port}`, drain: '2s' },
    },
    out,
    env,
  )
  if (typeof gateway === 'number') return gateway
  const { data, control, tokenFile } = gateway
  out.stdout(`${data}/mcp/${WRAPPED}`)
  out.stderr(`breakwater: wraps ${new URL(upstream).host}`)
  out.stderr(`breakwater:   ${data}/mcp/${WRAPPED}  the server as it is`)
  out.stderr(`breakwater:   ${data}/mcp  the same with names that begin with ${WRAPPED}__`)
  out.stderr(`breakwater:   ${control}/admin/mesh, ${control}/metrics  for operators`)
  if (tokenFile !== undefined) out.stderr(`breakwater:   ${tokenFile}  the control token`)
  await untilSignal()
  reportFaults(gateway.chaos.status(), out)
  await gateway.close()
  return 0
}
