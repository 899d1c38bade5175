import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { systemClock } from '../src/mesh/clock.ts'
import { script } from './middle.ts'
import type { Stall } from './scrape-probe.ts'

/** A gateway of its own process, with a probe in it. */
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

/** Starts the gateway before `upstream`, silent, for most of its calls will fail; `lost` hears if it ends too early. */
export async function startProbed(
  upstream: string,
  scratch: string,
  flags: readonly string[],
  lost: (error: Error) => void,
): Promise<Probed> {
  const [data, control] = [await freeAddress(), await freeAddress()]
  const file = join(scratch, 'gateway.json')
  const config = {
    gateway: { listen: data, control, environment: 'test' },
    mcpServers: { upstream: { url: `${upstream}/mcp` } },
    telemetry: { metrics: { maxAge: 0 } },
  }
  writeFileSync(file, JSON.stringify(config))
  const args = ['start', '--config', file, '--log-level', 'silent']
  const probe = ['--import', pathToFileURL(script('./scrape-probe.js')).href]
  const child = spawn(process.execPath, [...flags, ...probe, script('../src/main.js'), ...args], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  const early = () => lost(new Error('the gateway ended'))
  child.once('exit', early)
  process.once('exit', () => child.kill('SIGKILL'))
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
      child.off('exit', early)
      child.kill('SIGTERM')
      await once(child, 'exit')
    },
  }
}

/** Whether it has discovered its upstream; before it listens, nothing answers. */
function isReady(data: string): Promise<boolean> {
  return fetch(`http://${data}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  )
}

/** One that was free a moment ago: a silent gateway does not say where it listens. */
async function freeAddress(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return `127.0.0.1:${port}`
}
