import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../src/mesh/clock.ts'
import type { Children, Listening } from './children.ts'
import type { GatewayConfig, Subject } from './subjects.ts'

/** Address for the load, and the process whose CPU counts. */
export interface Endpoint {
  readonly origin: string
  readonly pid: number | undefined
}

export interface Surroundings {
  readonly children: Children
  readonly upstream: string
  readonly collector: string
  /** Folder for files of this run. */
  readonly scratch: string
  readonly flags: (name: string) => readonly string[]
}

/** Limits in force, as by default, so that their cost counts; never reached, although one client makes all calls. */
const OUT_OF_REACH = { perSession: { rate: '1000000/s' }, perTenant: { rate: '1000000/s' } }
const WIDE = { defaults: { bulkhead: { concurrent: 512 } } }

const READY_WITHIN_MS = 10_000
const READY_EVERY_MS = 50

/** Starts the process between the load and the upstream, and waits until the process serves. */
export async function startMiddle(subject: Subject, around: Surroundings): Promise<Endpoint> {
  const { middle } = subject
  const { children, upstream } = around
  if (middle === 'nothing') return { origin: upstream, pid: undefined }
  if (middle !== 'floor') return startGateway(subject, middle(around.collector), around)
  return children.listening([...around.flags(subject.name), script('./floor.js'), '--upstream', upstream])
}

/** Returns the path of a compiled file, relative to this folder. */
/** `HTTP_ENGINE=own` measures all rows with the gateway's own HTTP engine. */
const engine = process.env.HTTP_ENGINE === 'own' ? { http: 'own' } : {}

export function script(relative: string): string {
  return fileURLToPath(new URL(relative, import.meta.url))
}

async function startGateway(
  { name, main = script('../dist/main.js') }: Subject,
  config: GatewayConfig,
  around: Surroundings,
): Promise<Listening> {
  const { children, upstream, scratch, flags } = around
  const file = join(scratch, `${name}.json`)
  const base = {
    gateway: {
      listen: '127.0.0.1:0',
      control: '127.0.0.1:0',
      environment: 'test',
      limits: OUT_OF_REACH,
      ...engine,
    },
    mcpServers: { upstream: { url: `${upstream}/mcp` } },
    policies: WIDE,
  }
  const settings = { ...base, ...config, gateway: { ...base.gateway, ...(config.gateway as object) } }
  writeFileSync(file, JSON.stringify(settings))
  const gateway = await children.listening([...flags(name), main, 'start', '--config', file])
  await ready(gateway.origin)
  return gateway
}

/** Waits until the gateway has discovered its upstream: from then on tools are listed. */
async function ready(origin: string): Promise<void> {
  const giveUp = new AbortController()
  const error = new Error(`${origin}/readyz: not ready after ${READY_WITHIN_MS / 1_000} s`)
  const cancel = systemClock.after(READY_WITHIN_MS, () => giveUp.abort(error))
  const { signal } = giveUp
  while (!(await fetch(`${origin}/readyz`, { signal })).ok) await systemClock.sleep(READY_EVERY_MS, signal)
  cancel()
}
