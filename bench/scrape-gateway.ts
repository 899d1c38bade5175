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

/** What a gateway is started with. */
export interface ProbedParts {
  /** Origin of the upstream. */
  readonly upstream: string
  /** Folder for its config. */
  readonly scratch: string
  /** Flags for its node. */
  readonly flags: readonly string[]
  /** Hears of it if it ends before it is asked to. */
  readonly lost: (error: Error) => void
}

/** A gateway in a process of its own, with a probe in it. */
export interface Probed {
  readonly pid: number
  /** Origin of the data plane. */
  readonly data: string
  /** Origin of the control plane. */
  readonly control: string
  /** How long its event loop stood still at most since this was asked last, in milliseconds. */
  stallMs(): Promise<number>
  end(): Promise<void>
}

const READY_EVERY_MS = 50
const { signal } = new AbortController()

/** Starts a gateway, and waits until it serves. It logs nothing: most of the calls that fill its metrics fail. */
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
  // What it greets with also goes there: worth reading only once something went wrong.
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

/** Whether it has discovered its upstream; before it listens, nobody answers. */
function isReady(data: string): Promise<boolean> {
  return fetch(`http://${data}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  )
}

/** One that was free a moment ago: a gateway that logs nothing does not say where it listens. */
async function freeAddress(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return `127.0.0.1:${port}`
}
