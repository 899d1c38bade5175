import type { FaultStatus, Status } from '../../chaos/control/status.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { formatDuration } from '../../units/duration.ts'
import type { Control, Request } from '../chaos/control.ts'
import type { Output } from '../arguments.ts'
import type { Counted } from '../wrap/report.ts'
import { type Aim, aimed, type Aimed, type Scenario } from './library.ts'

export interface RunOptions extends Aim {
  readonly durationMs: Millis
}

export interface RunParts {
  readonly gateway: Faults
  readonly clock: Clock
  /** Makes calls until the run is over; none unless it is given. */
  readonly traffic?: { run(stop: Cancellation): Promise<void> }
  /** Ends the run early. */
  readonly stop: Cancellation
  /** Hears how it goes, line by line. */
  readonly say: (line: string) => void
  /** Shows how it stands, where somebody watches; elsewhere `say` is told now and then. */
  readonly status?: Output['status']
}

/** A fault of a run, with what it did as far as is known. */
export interface Injected {
  readonly name: string
  readonly id: string
  readonly counts: FaultCounts | undefined
}

/** The same while its counts still change. */
type Counting = { -readonly [Key in keyof Injected]: Injected[Key] }

/** What came of a run. */
export interface ScenarioRun {
  readonly faults: readonly Injected[]
  /** Why it proves nothing; empty when it is valid. */
  readonly flaws: readonly string[]
}

/** How often the counts are asked for, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** How often progress is told. */
const LOOKS_A_LINE = 5

/** How long faults outlive a run that dies, in milliseconds: several looks, as the machine may be busy. */
export const LEASE_MS: Millis = 5_000

/** How much longer than the run its faults would stay if nobody cleared them, in milliseconds. */
const MARGIN_MS: Millis = 30_000

/** How often clearing a fault is tried. */
const CLEAR_TRIES = 3

/** Injects the faults of a scenario, waits, and takes them away again, whatever happens. Rejects with a `ControlError`. */
export async function runScenario(
  scenario: Scenario,
  options: RunOptions,
  parts: RunParts,
): Promise<ScenarioRun> {
  const { gateway, say } = parts
  const before = await gateway.state()
  if (before.maxTtl < options.durationMs)
    throw new ControlError(
      `faults last no longer than chaos.maxTtl, which is ${formatDuration(before.maxTtl)}`,
    )
  const faults: Counting[] = []
  const flaws: string[] = []
  const over = new Cancellation()
  try {
    for (const written of scenario.faults) {
      if (parts.stop.aborted) break
      const name = String(written.name)
      const fault = aimed(written, options)
      const id = await gateway.inject(fault, options.durationMs + MARGIN_MS)
      faults.push({ name, id, counts: undefined })
      say(`injected ${name} (${id}) at ${fault.target}`)
    }
    const traffic = parts.traffic?.run(over)
    await watch(faults, options.durationMs, flaws, parts)
    over.abort('over')
    await traffic
  } finally {
    over.abort('over')
    parts.status?.(undefined)
    await clearAll(faults, parts)
  }
  if (parts.stop.aborted) flaws.push('it was stopped early')
  const after = await gateway.state()
  if (after.engineErrors > before.engineErrors)
    flaws.push(`the engine failed ${after.engineErrors - before.engineErrors} times`)
  flaws.push(...without(faults, after.mode))
  return { faults, flaws }
}

/** Keeps the counts up to date until the time is up: once a fault is cleared, nobody knows them any more. */
async function watch(
  faults: Counting[],
  durationMs: Millis,
  flaws: string[],
  { gateway, clock, stop, say, status }: RunParts,
): Promise<void> {
  const endsAt = clock.now() + durationMs
  for (let looks = 1; !stop.aborted; looks++) {
    const leftMs = Math.max(0, endsAt - clock.now())
    await clock.sleep(Math.min(LOOK_MS, leftMs), stop).catch(() => undefined)
    if (!stop.aborted) await gateway.renew(faults.map(({ id }) => id))
    const { state, faults: listed } = await gateway.state()
    for (const fault of faults) fault.counts = listed.find(({ id }) => id === fault.id) ?? fault.counts
    const lost = faults.filter(({ id }) => !listed.some((other) => other.id === id))
    if (lost.length > 0) {
      flaws.push(`${lost.map(({ name }) => name).join(', ')} ended before the run did (chaos is ${state})`)
      return
    }
    if (clock.now() >= endsAt) return
    const line = progress(faults, Math.max(0, endsAt - clock.now()))
    if (status !== undefined) status(line)
    else if (looks % LOOKS_A_LINE === 0) say(line)
  }
}

function progress(faults: readonly Injected[], leftMs: Millis): string {
  const hits = faults.map(({ name, counts }) => `${name} ${counts?.injected ?? 0}`).join(', ')
  return `${formatDuration(Math.round(leftMs / 1_000) * 1_000)} left; injected: ${hits}`
}

async function clearAll(faults: readonly Injected[], { gateway, say }: RunParts): Promise<void> {
  for (const { name, id } of faults) {
    for (let tries = 1; ; tries++) {
      try {
        await gateway.clear(id)
        break
      } catch (error) {
        if (tries < CLEAR_TRIES) continue
        say(`cannot clear ${name} (${id}), it ends by itself soon after: ${(error as Error).message}`)
        break
      }
    }
  }
}

function without(faults: readonly Injected[], mode: string): string[] {
  const sum = (count: (counts: FaultCounts) => number) =>
    faults.reduce((total, { counts }) => total + (counts === undefined ? 0 : count(counts)), 0)
  // What the gateway asks by itself, such as lists, can be hit as well: that is nobody's traffic.
  if (sum(({ hits }) => hits) > 0) return []
  const own = sum(({ discovery }) => discovery.hits)
  if (mode === 'shadow') return ['nothing was injected: chaos.mode is shadow']
  const decided = sum((counts) => counts.decided)
  if (own > 0)
    return [`no call of an agent was hit: the ${own} that were are the gateway's own. Is there any traffic?`]
  if (decided === 0) return ['nothing was injected: no call matched. Is there any traffic to these servers?']
  const hint = 'tools that are not known to be read-only are hit only with --allow-writes'
  return [`nothing was injected into ${decided} calls that matched; ${hint}`]
}

/** The gateway said no, or nothing at all; the message says what to do about it. */
export class ControlError extends Error {}

export type FaultCounts = Pick<
  FaultStatus,
  'id' | 'type' | 'decided' | 'hits' | 'concurrent' | Exclude<keyof Counted, 'name' | 'type'>
>

/** As much of `GET /admin/chaos` as a run looks at. */
export interface ChaosState extends Pick<Status, 'state' | 'mode' | 'engineErrors' | 'maxTtl'> {
  readonly faults: readonly FaultCounts[]
}

/** The faults of a running gateway. All of it rejects with a `ControlError`. */
export interface Faults {
  state(): Promise<ChaosState>
  /** Names of the servers that there are. */
  servers(): Promise<readonly string[]>
  /**
   * Arms a fault of ours for so long, and while it is renewed within `LEASE_MS`. Resolves to its id.
   */
  inject(fault: Aimed, durationMs: Millis): Promise<string>
  /** Begins the leases of faults again; those that have ended stay so. */
  renew(ids: readonly string[]): Promise<void>
  /** Ends a fault; one that has ended already is fine. */
  clear(id: string): Promise<void>
}

export function faultsAt(control: Control): Faults {
  async function ask(request: Request): Promise<Record<string, unknown>> {
    const answered = await control(request)
    if (!answered.ok) throw new ControlError(answered.message)
    return isObject(answered.value) ? answered.value : {}
  }
  const faults: Faults = {
    async state() {
      const state = await ask({ method: 'GET', path: '/admin/chaos' })
      if (Array.isArray(state.faults)) return state as unknown as ChaosState
      throw new ControlError('the gateway does not say which faults there are')
    },
    async servers() {
      const answered = await control({ method: 'GET', path: '/admin/servers' })
      if (!answered.ok) throw new ControlError(answered.message)
      const listed: unknown[] = Array.isArray(answered.value) ? answered.value : []
      return listed.flatMap((server) => (isObject(server) ? String(server.name) : []))
    },
    async inject(fault, durationMs) {
      const body = { ...fault, durationMs, leaseMs: LEASE_MS }
      const { faultId } = await ask({ method: 'POST', path: '/chaos/inject', body })
      if (typeof faultId !== 'string') throw new ControlError('the gateway gave the fault no id')
      return faultId
    },
    async renew(faultIds) {
      if (faultIds.length > 0) await ask({ method: 'POST', path: '/chaos/renew', body: { faultIds } })
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
