import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { systemClock } from '../src/mesh/clock.ts'
import { bound } from '../test/support/bound.ts'
import { script } from './middle.ts'
import type { Stall } from './scrape-probe.ts'

export interface ProbedParts {
  readonly upstream: string
  readonly scratch: string
  readonly flags: readonly string[]
  /** Gets the error of a gateway that ends too early. */
  readonly lost: (error: Error) => void
}

/** A gateway in its own process, with a probe inside. */
export interface Probed {
  readonly pid: number
  readonly data: string
  readonly control: string
  /** Returns the longest stall of its event loop since the last call, in milliseconds. */
  stallMs(): Promise<number>
  end(): Promise<void>
}

const READY_EVERY_MS = 50
const { signal } = new AbortController()

/** Starts a gateway and waits for readiness. Logging is off, because most calls that fill its metrics fail. */
export async function startProbed({ upstream, scratch, flags, lost }: ProbedParts): Promise<Probed> {
  const [data, control] = [await freeAddress(), await freeAddress()]
  const file = join(scratch, 'gateway.json')
  const config = {
    gateway: { listen: data, control, environment: 'test' },
    mcpServers: { upstream: { url: `${upstream}/mcp` } },
    policies: { defaults: { breaker: {} } },
    telemetry: { metrics: { maxAge: 0 } },
  }
  writeFileSync(file, JSON.stringify(config))
  const probe = ['--import', pathToFileURL(script('./scrape-probe.js')).href]
  const command = [script('../dist/main.js'), 'start', '--config', file, '--log-level', 'silent']
  const child = spawn(process.execPath, [...flags, ...probe, ...command], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: bound(),
  })
  // Standard error also holds greetings, so its text is shown only after a failure.
  let said = ''
  child.stderr!.on('data', (chunk: Buffer) => (said = (said + String(chunk)).slice(-4_000)))
  const early = () => lost(new Error(`the gateway ended\n${said}`))
  child.once('close', early)
  while (!(await isReady(data))) await systemClock.sleep(READY_EVERY_MS, signal)
  return {
    pid: child.pid!,
    data: `http://${data}`,
    control: `http://${control}`,
    async stallMs() {
      child.send('stall')
      const [{ maxMs }] = (await once(child, 'message')) as [Stall]
      return maxMs
    },
    async end() {
      child.off('close', early)
      child.kill('SIGTERM')
      await once(child, 'close')
    },
  }
}

/** Resolves to true if the gateway has discovered its upstream; false before the gateway listens. */
function isReady(data: string): Promise<boolean> {
  return fetch(`http://${data}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  )
}

/** Returns a recently free address: a gateway without a log cannot report its port. */
async function freeAddress(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return `127.0.0.1:${port}`
}
