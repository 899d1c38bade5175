import { z } from 'zod'
import { newFaultCounts } from '../../../chaos/accounting/counts.ts'
import { type Transport, transports } from '../../../chaos/fault.ts'
import type { FaultStatus, Status } from '../../../chaos/control/status.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import type { Control, Request } from '../../shared/control.ts'
import { samplesIn } from '../../shared/samples.ts'
import type { Counted as FaultCounted } from '../../run/wrap/report.ts'
import type { Counted } from './evidence.ts'
import type { Aimed } from './library.ts'

/** How long faults outlive a run that dies, in milliseconds: several looks, as the machine may be busy. */
export const LEASE_MS: Millis = 5_000

/** The gateway said no, or nothing at all; the message says what to do about it. */
export class ControlError extends Error {}

export interface FaultCounts extends Pick<
  FaultStatus,
  | 'type'
  | 'decided'
  | 'hits'
  | 'notApplicable'
  | 'rejections'
  | 'concurrent'
  | Exclude<keyof FaultCounted, 'name' | 'type'>
> {
  /** Absent for faults of the plan. */
  readonly id?: FaultStatus['id']
}

/** As much of `GET /admin/chaos` as a run looks at. */
export interface ChaosState extends Pick<Status, 'state' | 'mode' | 'seed' | 'engineErrors' | 'maxTtl'> {
  readonly faults: readonly FaultCounts[]
}

/** A server of a gateway. */
export interface KnownServer {
  readonly name: string
  /** How it is reached, as far as that is known. */
  readonly transport: Transport | undefined
  readonly isUp: boolean
}

export interface InjectedFault {
  readonly id: string
  /** Why parts of the fault do nothing at present, in words. */
  readonly warnings: readonly string[]
}

/** The faults of a running gateway, and what it says of itself. All of it rejects with a `ControlError`. */
export interface Faults {
  state(): Promise<ChaosState>
  servers(): Promise<readonly KnownServer[]>
  /** Breakers of these servers that are not closed, as `server/tool`. */
  breakers(servers: readonly string[]): Promise<readonly string[]>
  /** Makes the closed breakers of these tools, as `server/tool`, forget what was before. */
  renewBreakers(tools: readonly string[]): Promise<void>
  /** How long the gateway gives out the same metrics, in milliseconds. */
  metricsAge(): Promise<Millis>
  /** Resolves to the counts of these servers' metrics since the gateway started. */
  counters(servers: readonly string[]): Promise<Counted>
  /** Arms a fault of ours for so long, and while it is renewed within `LEASE_MS`. */
  inject(fault: Aimed, durationMs: Millis): Promise<InjectedFault>
  /** Begins the leases of faults again; those that have ended stay so. */
  renew(ids: readonly string[]): Promise<void>
  /** Resolves to the counts of the latest fault of this name, armed or not; undefined when the gateway knows none. */
  countsOf(name: string): Promise<FaultCounts | undefined>
  /** Ends a fault; one that has ended already is fine. */
  clear(id: string): Promise<void>
}

export function faultsAt(control: Control): Faults {
  async function answerTo(request: Request): Promise<unknown> {
    const answered = await control(request)
    if (!answered.ok) throw new ControlError(answered.message)
    return answered.value
  }
  async function ask(request: Request): Promise<Record<string, unknown>> {
    const value = await answerTo(request)
    return isObject(value) ? value : {}
  }
  /** Rejects an answer that has another shape than a gateway's: such an answer says nothing about breakers. */
  const get = async <Value>(path: string, schema: z.ZodType<Value>): Promise<Value> =>
    understood(path, schema, await answerTo({ method: 'GET', path }))
  const faults: Faults = {
    state: () => get('/admin/chaos', chaosState),
    async servers() {
      const listed = await get('/admin/servers', z.array(knownServer))
      return listed.map((server) => ({
        name: server.name,
        transport: transportOf(server),
        isUp: server.state === 'up',
      }))
    },
    async breakers(servers) {
      const listed = await get('/admin/breakers', z.array(knownBreaker))
      return listed.flatMap(({ server, tool = '_other', state }) =>
        // A gate opens for all tools of a server that is lost, and is no breaker.
        servers.includes(server) && tool !== '*' && state !== 'closed' ? [`${server}/${tool}`] : [],
      )
    },
    async renewBreakers(tools) {
      const listed = await get('/admin/breakers', z.array(knownBreaker))
      const paths = listed.flatMap(({ set, server, tool, state, manual }) => {
        const isMeant = state === 'closed' && manual !== true && tools.includes(`${server}/${tool}`)
        // A server may give a tool a name that no URL can hold; its breaker goes on with what it has counted.
        if (!isMeant || LONE_SURROGATE.test(String(tool))) return []
        const [at, of, by] = [server, tool, set].map((part) => encodeURIComponent(String(part)))
        return [`/admin/breakers/${at}/${of}?set=${by}`]
      })
      // A tool with several replicas has several: they are taken together.
      for (const path of new Set(paths)) await control({ method: 'POST', path, body: { action: 'reset' } })
    },
    async metricsAge() {
      const { config } = await ask({ method: 'GET', path: '/admin/config' })
      const telemetry = isObject(config) && isObject(config.telemetry) ? config.telemetry : {}
      const age = isObject(telemetry.metrics) ? telemetry.metrics.maxAge : undefined
      return typeof age === 'number' ? age : 0
    },
    async counters(servers) {
      return countersIn(String(await answerTo({ method: 'GET', path: '/metrics', isText: true })), servers)
    },
    async inject(fault, durationMs) {
      const body = { ...fault, durationMs, leaseMs: LEASE_MS }
      const { faultId, warnings } = await ask({ method: 'POST', path: '/chaos/inject', body })
      if (typeof faultId !== 'string') throw new ControlError('the gateway gave the fault no id')
      return { id: faultId, warnings: Array.isArray(warnings) ? warnings.map(String) : [] }
    },
    async renew(faultIds) {
      if (faultIds.length > 0) await ask({ method: 'POST', path: '/chaos/renew', body: { faultIds } })
    },
    async countsOf(name) {
      const path = `/admin/chaos/faults/${encodeURIComponent(name)}`
      const answered = await control({ method: 'GET', path })
      return answered.ok ? understood(path, faultCounts, answered.value) : undefined
    },
    async clear(faultId) {
      const cleared = await control({ method: 'POST', path: '/chaos/clear', body: { faultId } })
      if (cleared.ok) return
      // It may have ended meanwhile.
      const { faults: listed } = await faults.state()
      if (listed.some(({ id }) => id === faultId)) throw new ControlError(cleared.message)
    },
  }
  return faults
}

const count = z.number().min(0)
const counts = Object.fromEntries(Object.keys(newFaultCounts()).map((key) => [key, count])) as Record<
  keyof ReturnType<typeof newFaultCounts>,
  typeof count
>

const faultCounts: z.ZodType<FaultCounts> = z.looseObject({
  id: z.string().optional(),
  type: z.string(),
  concurrent: count,
  ...counts,
  discovery: z.looseObject(counts),
})

const chaosState: z.ZodType<ChaosState> = z.looseObject({
  state: z.enum(['disarmed', 'armed', 'killed']),
  mode: z.enum(['act', 'shadow']),
  seed: z.union([z.number(), z.string()]),
  engineErrors: count,
  maxTtl: count,
  faults: z.array(faultCounts),
})

const knownServer = z.looseObject({ name: z.string(), state: z.unknown() })

/** In Unicode mode halves of a pair are found where the other half is missing. */
const LONE_SURROGATE = /\p{Surrogate}/u

const knownBreaker = z.looseObject({
  set: z.string().optional(),
  server: z.string(),
  tool: z.string().optional(),
  state: z.enum(['closed', 'open', 'half_open']),
  manual: z.boolean().optional(),
})

/** An answer, if it is what this schema says. Throws a `ControlError` otherwise. */
function understood<Value>(path: string, schema: z.ZodType<Value>, value: unknown): Value {
  const { success, data, error } = schema.safeParse(value)
  if (success) return data
  const { path: place = [], message = '' } = error.issues[0] ?? {}
  const where = place.length === 0 ? '' : ` (at ${place.map(String).join('.').slice(0, 100)})`
  throw new ControlError(
    `${path} does not answer as the control port of this version does: ${message.slice(0, 200)}${where}`,
  )
}

/** By what `/admin/servers` says of one: what was found out about its first replica, or else what its config says. */
function transportOf({ type, transport }: Readonly<Record<string, unknown>>): Transport | undefined {
  const found: unknown = Array.isArray(transport) ? transport[0] : undefined
  const known = isObject(found) && found.transport === 'sse' ? 'sse' : type
  return transports.find((one) => one === known)
}

/** Reads what a run compares out of what Prometheus would scrape: the sums over these servers. */
export function countersIn(metrics: string, servers: readonly string[]): Counted {
  const rejections: Record<string, number> = {}
  const verdicts: Record<string, number> = {}
  const sum = { calls: 0, attempts: 0, retries: 0 }
  const add = (counts: Record<string, number>, key: string | undefined, count: number) => {
    if (key !== undefined) counts[key] = (counts[key] ?? 0) + count
  }
  for (const { name, labels, value: count } of samplesIn(metrics)) {
    if (!servers.includes(labels.server ?? '') || !Number.isFinite(count)) continue
    if (name === 'breakwater_tool_calls_total') sum.calls += count
    if (name === 'breakwater_upstream_attempts_total') sum.attempts += count
    if (name === 'breakwater_upstream_attempts_total') add(verdicts, labels.verdict, count)
    if (name === 'breakwater_retries_total' && labels.decision === 'sent') sum.retries += count
    if (name === 'breakwater_rejections_total') add(rejections, labels.reason, count)
  }
  return { ...sum, rejections, verdicts }
}
