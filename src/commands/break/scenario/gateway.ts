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

/**
 * How long faults stay armed after a run was killed, in milliseconds. A lease covers several renewals, because a busy
 * machine may delay one.
 */
export const LEASE_MS: Millis = 5_000

/** Thrown when the gateway refused or did not answer. The message names the remedy. */
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

/** The fields of `GET /admin/chaos` needed by a run. */
export interface ChaosState extends Pick<Status, 'state' | 'mode' | 'seed' | 'engineErrors' | 'maxTtl'> {
  readonly faults: readonly FaultCounts[]
}

export interface KnownServer {
  readonly name: string
  readonly transport: Transport | undefined
  readonly isUp: boolean
}

export interface InjectedFault {
  readonly id: string
  /** Reasons why parts of the fault have no effect at present. */
  readonly warnings: readonly string[]
}

/** Faults and state of a running gateway. All methods reject with a `ControlError`. */
export interface Faults {
  state(): Promise<ChaosState>
  servers(): Promise<readonly KnownServer[]>
  /** Resolves to the breakers of these servers that are not closed, as `server/tool`. */
  breakers(servers: readonly string[]): Promise<readonly string[]>
  /** Resets the closed breakers of these tools, as `server/tool`. */
  renewBreakers(tools: readonly string[]): Promise<void>
  /** Resolves to the time for which the gateway caches its metrics, in milliseconds. */
  metricsAge(): Promise<Millis>
  /** Resolves to the counts of these servers' metrics since the gateway's start. */
  counters(servers: readonly string[]): Promise<Counted>
  /** Arms a fault for `durationMs`, as long as it is renewed within `LEASE_MS`. */
  inject(fault: Aimed, durationMs: Millis): Promise<InjectedFault>
  /** Renews the leases of faults; ended faults stay ended. */
  renew(ids: readonly string[]): Promise<void>
  /** Resolves to the counts of the latest fault of this name, armed or not; undefined for an unknown name. */
  countsOf(name: string): Promise<FaultCounts | undefined>
  /** Ends a fault. Resolves also if the fault has already ended. */
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
  /** Requests a path. Rejects if the answer does not match the schema, because such an answer proves nothing. */
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
        // The tool `*` stands for the gate of a whole server, which is not a breaker.
        servers.includes(server) && tool !== '*' && state !== 'closed' ? [`${server}/${tool}`] : [],
      )
    },
    async renewBreakers(tools) {
      const listed = await get('/admin/breakers', z.array(knownBreaker))
      const paths = listed.flatMap(({ set, server, tool, state, manual }) => {
        const isMeant = state === 'closed' && manual !== true && tools.includes(`${server}/${tool}`)
        // The name of a tool may be impossible in a URL; the breaker of this tool is not reset.
        if (!isMeant || LONE_SURROGATE.test(String(tool))) return []
        const [at, of, by] = [server, tool, set].map((part) => encodeURIComponent(String(part)))
        return [`/admin/breakers/${at}/${of}?set=${by}`]
      })
      // A tool has a breaker per replica; all are reset together.
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
      // The fault may have ended by itself, so the error counts only if the fault still exists.
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

/** With the flag `u`, the pattern matches only a surrogate without its other half. */
const LONE_SURROGATE = /\p{Surrogate}/u

const knownBreaker = z.looseObject({
  set: z.string().optional(),
  server: z.string(),
  tool: z.string().optional(),
  state: z.enum(['closed', 'open', 'half_open']),
  manual: z.boolean().optional(),
})

/** Returns an answer parsed by the schema. Throws a `ControlError` for another shape. */
function understood<Value>(path: string, schema: z.ZodType<Value>, value: unknown): Value {
  const { success, data, error } = schema.safeParse(value)
  if (success) return data
  const { path: place = [], message = '' } = error.issues[0] ?? {}
  const where = place.length === 0 ? '' : ` (at ${place.map(String).join('.').slice(0, 100)})`
  throw new ControlError(
    `${path} does not answer as the control port of this version does: ${message.slice(0, 200)}${where}`,
  )
}

/** Returns the transport of a server in `/admin/servers`: discovered at its first replica, or else from its config. */
function transportOf({ type, transport }: Readonly<Record<string, unknown>>): Transport | undefined {
  const found: unknown = Array.isArray(transport) ? transport[0] : undefined
  const known = isObject(found) && found.transport === 'sse' ? 'sse' : type
  return transports.find((one) => one === known)
}

/** Sums a run's counts over these servers, from metrics in Prometheus format. */
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
