import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import type { Config } from '../../config/schema/schema.ts'
import { type Cancel, systemClock } from '../../mesh/clock.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { KnownServer } from '../../registry/known-server.ts'
import { type Paint, plain } from '../../telemetry/colours.ts'
import { printable } from '../../telemetry/printable.ts'
import { logLevels, optionLines, runCommand, type Values } from '../shared/arguments.ts'
import { exitSoon } from './exit-soon.ts'
import { configNames, findConfig, namedConfig, noConfig } from './find-config.ts'
import { seconds, showProgress } from '../shared/progress.ts'
import { untilSignal } from '../shared/signals.ts'
import type { Terminal } from '../shared/terminal.ts'

const options = {
  config: {
    kind: 'text',
    value: 'FILE',
    about: `the config, same as FILE (default: the first of ${configNames.join(', ')})`,
  },
  host: { kind: 'text', value: 'HOST', about: "the data plane's address, overriding the config" },
  port: {
    kind: 'integer',
    max: 65_534,
    value: 'PORT',
    about: "the data plane's port; the control plane gets the next port",
  },
  'log-level': {
    kind: 'choice',
    of: logLevels,
    value: 'LEVEL',
    default: 'info',
    about: 'trace, debug, info, warn, error, fatal or silent',
  },
} as const

const usage = `breakwater start [FILE]

  Runs the gateway until SIGTERM or SIGINT. SIGHUP reloads the config, SIGUSR2 kills all faults.

${optionLines(options)}`

/** Longest wait of the banner for the discovery of servers, in milliseconds. */
const BANNER_MS = 10_000

/** `breakwater start`: runs until SIGTERM or SIGINT. Resolves to the exit code. */
export function start(args: readonly string[], out: Terminal, env: Env): Promise<number> {
  return runCommand(args, { usage, options }, out, async (values, positionals) => {
    const named = namedConfig(values.config, positionals)
    const config = named ?? (await findConfig(process.cwd()))
    if (config === undefined) {
      out.stderr(`breakwater: ${noConfig}`)
      return 1
    }
    if (named === undefined) out.stderr(`breakwater: the config is ${config}`)
    return serve(config, values, out, env)
  })
}

async function serve(path: string, values: Values<typeof options>, out: Terminal, env: Env): Promise<number> {
  // Without a handler, these signals would end the process. Signals during the start are queued and handled after the
  // start.
  const early: NodeJS.Signals[] = []
  let heed = (signal: NodeJS.Signals): unknown => early.push(signal)
  for (const signal of ['SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => heed(signal))
  const [{ loadConfig }, { startGateway }, { settled }, { createLog }] = await Promise.all([
    import('../../config/load.ts'),
    import('../../gateway/gateway.ts'),
    import('../../registry/listing.ts'),
    import('../../telemetry/log.ts'),
  ])
  const loaded = await loadConfig(path, env)
  if (!loaded.ok) {
    for (const issue of loaded.errors) out.stderr(formatIssue(issue))
    return 1
  }
  const isTTY = process.stdout.isTTY
  const log = createLog(values['log-level'], isTTY ? out.log : process.stdout)
  for (const issue of loaded.warnings) log.warn(formatIssue(issue))
  const config = readdress(loaded.config, values)

  // Installed before the start, so a signal right after the start also closes everything.
  const stopped = untilSignal()
  let gateway
  try {
    gateway = await startGateway({ config, path, files: loaded.files, env, log })
  } catch (error) {
    out.stderr(`breakwater: cannot start: ${(error as Error).message}`)
    // Sockets or timers created before the failure may keep the process alive.
    exitSoon(1)
    return 1
  }
  const { live, data, control, controlMcp, tokenFile, chaos } = gateway
  const endWaiting = out.status === undefined ? () => undefined : showWaiting(live.current, out)
  void settled(live.current.servers.values(), systemClock, BANNER_MS).then(() => {
    // A pipe expects only JSON lines on standard output.
    const parts = { data, control, controlMcp, tokenFile, paint: isTTY ? out.paint : plain }
    const text = banner(live.current, parts)
    if (isTTY) out.stdout(text)
    else out.stderr(text)
  })
  heed = (signal) =>
    signal === 'SIGHUP' ? gateway.reload(signal) : chaos.killSwitch.kill(signal, 'the process was signalled')
  for (const signal of early) heed(signal)
  await stopped
  endWaiting()
  await gateway.close()
  exitSoon(0)
  return 0
}

/** Shows the servers still starting, until all are settled; returns a function to end the display. */
function showWaiting({ servers }: GatewayGeneration, out: Terminal): Cancel {
  const cancel = showProgress(out, systemClock, (ms) => {
    const waiting = [...servers.values()].filter(({ state }) => state === 'starting')
    const names = waiting.map(({ name }) => printable(name)).join(', ')
    return waiting.length === 0 ? undefined : `${names}  starting, ${seconds(ms)}`
  })
  void Promise.all([...servers.values()].map((server) => server.settled)).then(cancel)
  return cancel
}

function readdress(config: Config, { host, port }: Values<typeof options>): Config {
  const move = (address: string, offset: number) => {
    const colon = address.lastIndexOf(':')
    const moved = port === undefined || port === 0 ? port : port + offset
    return `${address.slice(0, colon)}:${moved ?? address.slice(colon + 1)}`
  }
  const { listen, control } = config.gateway
  const onHost = host === undefined ? listen : `${host}:${listen.slice(listen.lastIndexOf(':') + 1)}`
  return { ...config, gateway: { ...config.gateway, listen: move(onHost, 0), control: move(control, 1) } }
}

/** Longest shown reason for a server being down, in characters. */
const LONGEST_REASON = 400

interface BannerParts {
  readonly data: string
  readonly control: string
  /** The base URL of the control MCP server, if the gateway has one. */
  readonly controlMcp: string | undefined
  /** The file with the control token, if created at start. */
  readonly tokenFile: string | undefined
  readonly paint: Paint
}

function banner(
  { servers }: GatewayGeneration,
  { data, control, controlMcp, tokenFile, paint }: BannerParts,
): string {
  const width = Math.max(0, ...[...servers.keys()].map((name) => name.length))
  const snippet = { mcpServers: { breakwater: { type: 'http', url: `${data}/mcp` } } }
  return [
    '',
    `  ${paint('strong', 'Breakwater is up.')}`,
    '',
    `  All servers    ${data}/mcp`,
    `  One of them    ${data}/mcp/{server}`,
    `  Operators      ${control}/admin/servers, ${control}/metrics`,
    ...(controlMcp === undefined ? [] : [`  Control MCP    ${controlMcp}/mcp`]),
    ...(tokenFile === undefined ? [] : [`  Control token  ${tokenFile}`]),
    '',
    ...[...servers.values()].map((server) => `  ${server.name.padEnd(width)}  ${describe(server, paint)}`),
    '',
    '  Paste this into an MCP client:',
    '',
    ...JSON.stringify(snippet, undefined, 2)
      .split('\n')
      .map((line) => `  ${line}`),
    '',
  ].join('\n')
}

function describe(server: KnownServer, paint: Paint): string {
  switch (server.state) {
    case 'up': {
      const count = server.entries('tools').length
      return `${paint('good', 'up')}, ${count} ${count === 1 ? 'tool' : 'tools'}`
    }
    case 'starting':
      return paint('doubtful', `starting, ${seconds(Math.max(0, systemClock.wall() - server.since))}`)
    case 'down':
      return `${paint('bad', 'down')}: ${printable(server.error?.message ?? 'no reason known', LONGEST_REASON)}`
  }
}
