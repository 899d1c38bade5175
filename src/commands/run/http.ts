import type { Env } from '../../config/files/interpolate.ts'
import { Misuse, optionLines, type Output, runCommand, type Values, wrapping } from '../shared/arguments.ts'
import { systemClock } from '../../mesh/clock.ts'
import { requestText } from '../../protocol/jsonrpc.ts'
import { patiently } from '../../load/timing.ts'
import { exitSoon } from './exit-soon.ts'
import { reportFaults } from './wrap/report.ts'
import { untilSignal } from '../shared/signals.ts'
import { WRAPPED } from './plan-file.ts'
import { startWrapped } from './wrap/wrapped.ts'

const options = {
  upstream: { kind: 'url', value: 'URL', about: 'the MCP endpoint to wrap; default path: /mcp' },
  port: { kind: 'integer', max: 65_535, value: 'PORT', default: '8900', about: '0 for any free port' },
  ...wrapping,
} as const

const usage = `breakwater http --upstream URL [--plan FILE] [--strict] [--port PORT]

  Wraps the MCP server at URL in the whole mesh, and serves it over HTTP, on loopback only.

${optionLines(options)}`

/** `breakwater http`: runs until SIGTERM or SIGINT. Resolves to the exit code. */
export function http(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, (values) => serve(values, out, env))
}

async function serve(values: Values<typeof options>, out: Output, env: Env): Promise<number> {
  const { upstream, port, plan, strict, 'log-level': logLevel } = values
  if (upstream === undefined) throw new Misuse('which endpoint? --upstream is missing')
  const gateway = await startWrapped(
    {
      plan,
      strict,
      logLevel,
      server: { url: await endpointAt(upstream) },
      gateway: { listen: `127.0.0.1:${port}`, drain: '2s' },
    },
    out,
    env,
  )
  const { data, control, tokenFile } = gateway
  out.stdout(`${data}/mcp/${WRAPPED}`)
  out.stderr(`breakwater: wraps ${new URL(upstream).host}`)
  out.stderr(`breakwater:   ${data}/mcp/${WRAPPED}  the server under its own tool names`)
  out.stderr(`breakwater:   ${data}/mcp  the server with tool names prefixed by ${WRAPPED}__`)
  out.stderr(`breakwater:   ${control}/admin/mesh, ${control}/metrics  for operators`)
  if (tokenFile !== undefined) out.stderr(`breakwater:   ${tokenFile}  the control token`)
  await untilSignal()
  reportFaults(gateway.chaos.status(), out)
  await gateway.close()
  exitSoon(0)
  return 0
}

/** Timeout of the request that checks whether the server has the default endpoint, in milliseconds. */
const ASK_MS = 2_000

/**
 * Resolves to the MCP endpoint of an address. Adds the default path `/mcp` to an address without a path, unless the
 * server answers 404 there.
 */
async function endpointAt(address: string): Promise<string> {
  const url = URL.canParse(address) ? new URL(address) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.pathname + url.search !== '/')
    return address
  const usual = new URL('/mcp', url)
  const status = await patiently({ clock: systemClock, ms: ASK_MS }, async (signal) => {
    const reply = await fetch(usual, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: requestText('breakwater:ping', 'ping'),
      redirect: 'manual',
      signal,
    })
    void reply.body?.cancel().catch(() => undefined)
    return reply.status
    // A server that cannot be reached now may start later, so its endpoint gets the default path.
  }).catch(() => undefined)
  return status === 404 ? address : usual.href
}
