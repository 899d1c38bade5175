import { formatIssue } from '../config/issues/issues.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema/schema.ts'
import { startGateway } from '../gateway/gateway.ts'
import { systemClock } from '../mesh/clock.ts'
import { settled } from '../registry/listing.ts'
import { createLog } from '../telemetry/log.ts'
import { banner } from './banner.ts'

export interface StartOptions {
  readonly config: string
  readonly host?: string | undefined
  readonly port?: string | undefined
  readonly logLevel: string
}

export interface Output {
  stdout(line: string): void
  stderr(line: string): void
}

/** How long the banner waits for servers to be discovered, in milliseconds. */
const BANNER_MS = 10_000

/** How long the process may go on when all is closed, in milliseconds. */
const LINGER_MS = 500

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']

/** `breakwater start`: runs until SIGTERM or SIGINT. Resolves to the exit code. */
export async function start(options: StartOptions, out: Output): Promise<number> {
  if (!levels.includes(options.logLevel)) {
    out.stderr(`breakwater: --log-level must be one of ${levels.join(', ')}`)
    return 2
  }
  const loaded = await loadConfig(options.config, process.env)
  if (!loaded.ok) {
    for (const issue of loaded.errors) out.stderr(formatIssue(issue))
    return 1
  }
  const log = createLog(options.logLevel)
  for (const issue of loaded.warnings) log.warn(formatIssue(issue))
  const config = readdress(loaded.config, options)
  if (config === undefined) {
    out.stderr('breakwater: --port must be a number from 0 to 65534')
    return 2
  }

  // From before the start on: whoever ends a gateway that has just come up wants what it made to go, too.
  const stopped = new Promise<void>((resolve) => {
    process.once('SIGTERM', resolve)
    process.once('SIGINT', resolve)
  })
  let gateway
  try {
    gateway = await startGateway({ config, path: options.config, files: loaded.files, env: process.env, log })
  } catch (error) {
    out.stderr(`breakwater: cannot start: ${(error as Error).message}`)
    // Whatever may be left of the parts that were made already.
    systemClock.after(LINGER_MS, () => process.exit(1))
    return 1
  }
  const { live, data, control, tokenFile, chaos } = gateway
  void settled(live.current.servers.values(), systemClock, BANNER_MS).then(() => {
    // On standard output a pipe expects JSON lines and nothing else.
    const print = process.stdout.isTTY ? out.stdout : out.stderr
    print(banner(live.current, { data, control, tokenFile }))
  })
  process.on('SIGHUP', () => void gateway.reload('SIGHUP'))
  process.on('SIGUSR2', () => chaos.killSwitch.kill('SIGUSR2', 'the process was signalled'))
  await stopped
  const hurry = () => process.exit(1)
  process.once('SIGTERM', hurry)
  process.once('SIGINT', hurry)
  await gateway.close()
  // An exporter of spans cannot be told to give up on a collector that does not answer.
  systemClock.after(LINGER_MS, () => process.exit(0))
  return 0
}

/** The config under the addresses of the command line; undefined when they are none. */
function readdress(config: Config, { host, port }: StartOptions): Config | undefined {
  if (port !== undefined && !(/^\d{1,5}$/.test(port) && Number(port) < 65_535)) return undefined
  const move = (address: string, offset: number) => {
    const colon = address.lastIndexOf(':')
    const moved = port === undefined || port === '0' ? port : String(Number(port) + offset)
    return `${address.slice(0, colon)}:${moved ?? address.slice(colon + 1)}`
  }
  const { listen, control } = config.gateway
  const onHost = host === undefined ? listen : `${host}:${listen.slice(listen.lastIndexOf(':') + 1)}`
  return { ...config, gateway: { ...config.gateway, listen: move(onHost, 0), control: move(control, 1) } }
}
