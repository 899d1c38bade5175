import { openFates } from '../../../chaos/accounting/counts.ts'
import { Cancellation } from '../../../mesh/cancel.ts'
import type { Clock, Millis } from '../../../mesh/clock.ts'
import { formatDuration } from '../../../units/duration.ts'
import type { Output } from '../../shared/arguments.ts'
import { bar, seconds } from '../../shared/progress.ts'
import { aftermathOf, assertsCounts } from './assertions-schema.ts'
import {
  type BreakerLook,
  type Counted,
  type Evidence,
  type Fates,
  type OwnCall,
  recoveryOf,
  stableCount,
  UNANSWERED,
} from './evidence.ts'
import { type ChaosState, ControlError, type FaultCounts, type Faults } from './gateway.ts'
import { type Aim, aimed, faultsEnd, type Scenario } from './library.ts'
import { numbered } from '../../../units/numbered.ts'

export interface RunOptions extends Aim {
  readonly durationMs: Millis
  /** Names of the hit servers; a run observes their breakers and metrics. */
  readonly hit: readonly string[]
  readonly others: readonly string[]
}

export interface OwnTraffic {
  readonly calls: readonly OwnCall[]
  /** Called tools of hit servers, as `server/tool`. */
  readonly tools: readonly string[]
  /** Checks that calls succeed before any injection; rejects otherwise. Resolves to the omitted tools. */
  settle(stop: Cancellation): Promise<readonly string[]>
  /** Makes calls until `stop` aborts, then waits a while for calls under way. */
  run(stop: Cancellation): Promise<void>
  /** Names of all tools listed by `/mcp`; undefined without an answer. */
  listed(): Promise<readonly string[] | undefined>
}

export interface RunParts {
  readonly gateway: Faults
  readonly clock: Clock
  /** Absent when a run only observes the calls of others. */
  readonly traffic?: OwnTraffic
  readonly stop: Cancellation
  /** Called with progress, line by line. */
  readonly say: (line: string) => void
  /** Shows the progress on a terminal. Without a terminal it is absent, and `say` gets a progress line now and then. */
  readonly status?: Output['status']
}

export interface Injected {
  readonly name: string
  readonly id: string
  readonly counts: FaultCounts | undefined
  /** The counts of the fault just before it was cleared, which released the held calls. */
  readonly whenCleared: FaultCounts | undefined
}

/** An injected fault whose counts still change. */
type Counting = { -readonly [Key in keyof Injected]: Injected[Key] } & { isCleared?: true }

export interface ScenarioRun {
  readonly faults: readonly Injected[]
  /** Reasons why the run proves nothing; empty for a valid run. */
  readonly flaws: readonly string[]
  /** Undefined when nothing was injected. */
  readonly evidence: Evidence | undefined
  readonly isStopped: boolean
  /** Failures of the fault engine during the run. */
  readonly engineErrors: number
  readonly seed: ChaosState['seed']
}

/** Poll interval of the counts, in milliseconds. */
const LOOK_MS: Millis = 1_000

const LOOKS_A_LINE = 5

/** Time added to the duration of the run as lifetime of its faults, in milliseconds, in case nobody clears them. */
const MARGIN_MS: Millis = 30_000

/** Maximum number of attempts to clear a fault; a stopped run makes one attempt. */
const CLEAR_TRIES = 3

/**
 * Longest wait for the fates of faults after the run's last call, in milliseconds. Calls of other clients may take
 * long.
 */
const FATES_MS: Millis = 2_000

/** Longest time that a run waits for the gateway's metrics cache to expire, in milliseconds. */
const MAX_METRICS_AGE_MS: Millis = 10_000

/**
 * Further observation after the longest allowed recovery, in milliseconds, so that the report can show a late recovery.
 */
const LATE_MS: Millis = 3_000

interface Collected {
  readonly faults: Counting[]
  readonly flaws: string[]
  readonly breakers: BreakerLook[]
}

/**
 * Checks that calls succeed, injects the faults of a scenario, waits, and always clears the faults. Then observes as
 * long as the scenario has assertions on the aftermath. Rejects with a `ControlError` or with the traffic's error.
 */
export async function runScenario(
  scenario: Scenario,
  options: RunOptions,
  parts: RunParts,
): Promise<ScenarioRun> {
  const { gateway, clock, traffic, stop } = parts
  const { hit, durationMs } = options
  const before = await gateway.state()
  if (before.maxTtl < durationMs)
    throw new ControlError(
      `faults last no longer than chaos.maxTtl, which is ${formatDuration(before.maxTtl)}`,
    )
  const unfit = await settled(parts)
  if (unfit.length > 0) parts.say(leftOut(unfit))
  // Resets the breakers, so counts and open times of an earlier run do not affect this run.
  if (traffic !== undefined && !stop.aborted) await gateway.renewBreakers(traffic.tools)
  const wantsLists = scenario.assert.lists !== undefined
  const listed = wantsLists ? await traffic?.listed() : undefined
  const countedBefore = await counters(scenario, hit, parts)
  // The faults did not cause breakers that are already open, so these breakers are ignored later.
  const openBefore = new Set(await gateway.breakers(hit))
  const look = async () => (await gateway.breakers(hit)).filter((key) => !openBefore.has(key))

  const collected: Collected = { faults: [], flaws: [], breakers: [] }
  const { faults, flaws, breakers } = collected
  const over = new Cancellation()
  let running: Promise<void> | undefined
  let armedAt = clock.now()
  let clearedAt = armedAt
  let listedDuring: readonly string[] | undefined
  try {
    await injectAll(scenario, options, faults, parts)
    armedAt = clock.now()
    if (!stop.aborted) running = traffic?.run(over)
    await watch(collected, armedAt + durationMs, look, parts)
    if (listed !== undefined && !stop.aborted) listedDuring = await traffic?.listed()
    clearedAt = clock.now()
    await clearAll(faults, parts)
    const faultsEndedAt = Math.min(faultsEnd(scenario, durationMs), clearedAt - armedAt)
    const seen = () => relative(traffic?.calls, armedAt)
    if (flaws.length === 0)
      await watchRecovery({ scenario, breakers, seen, faultsEndedAt, armedAt }, look, parts)
    over.abort('over')
    await running
    await recount(faults, parts)
  } finally {
    over.abort('over')
    parts.status?.(undefined)
    await clearAll(faults, parts)
  }
  if (stop.aborted) flaws.push('it was stopped early')
  // A stopped run is invalid anyway, and the gateway may not answer any more.
  const after = stop.aborted ? before : await gateway.state()
  const engineErrors = after.engineErrors - before.engineErrors
  if (engineErrors > 0) flaws.push(`the engine failed ${numbered(engineErrors, 'time')}`)
  if (!stop.aborted) flaws.push(...without(faults, after.mode))
  // At least one fault hit calls, so the run is valid; the loop reports the faults without a hit.
  if (flaws.length === 0)
    for (const fault of faults)
      for (const why of without([fault], after.mode)) parts.say(`${fault.name}: ${why}`)
  const countedAfter = flaws.length > 0 ? undefined : await counters(scenario, hit, parts)
  const sinceArmed = clearedAt - armedAt
  const evidence: Evidence = {
    calls: traffic && relative(traffic.calls, armedAt),
    others: options.others,
    breakers: breakers.map(({ at, open }) => ({ at: at - armedAt, open })),
    fates: fatesOf(faults),
    counted:
      countedBefore && countedAfter && increaseOver(countedBefore, countedAfter, endedCalls(traffic?.calls)),
    unlisted: listedDuring && listed?.filter((name) => !listedDuring?.includes(name)),
    faultsEndedAt: Math.min(faultsEnd(scenario, durationMs), sinceArmed),
    clearedAt: sinceArmed,
    endedAt: clock.now() - armedAt,
  }
  return {
    faults,
    flaws,
    evidence: faults.length === 0 ? undefined : evidence,
    isStopped: stop.aborted,
    engineErrors,
    seed: after.seed,
  }
}

/** Waits until calls succeed. Resolves to the omitted tools. */
async function settled({ traffic, stop, status }: RunParts): Promise<readonly string[]> {
  if (traffic === undefined) return []
  status?.('checking that calls succeed')
  return traffic.settle(stop).finally(() => status?.(undefined))
}

const MAX_NAMED = 4

function leftOut(unfit: readonly string[]): string {
  const more = unfit.length > MAX_NAMED ? ', …' : ''
  return `tools not called, because made-up arguments get no good answer: ${unfit.slice(0, MAX_NAMED).join(', ')}${more} (${numbered(unfit.length, 'tool')})`
}

async function injectAll(
  scenario: Scenario,
  options: RunOptions,
  faults: Counting[],
  { gateway, stop, say }: RunParts,
): Promise<void> {
  for (const written of scenario.faults) {
    if (stop.aborted) return
    const name = String(written.name)
    const fault = aimed(written, options)
    const { id, warnings } = await gateway.inject(fault, options.durationMs + MARGIN_MS)
    faults.push({ name, id, counts: undefined, whenCleared: undefined })
    say(`injected ${name} (${id}) at ${fault.target}`)
    for (const warning of warnings) say(`${name}: ${warning}`)
  }
}

/** Returns calls with times relative to the arming of the faults. */
function relative(calls: readonly OwnCall[] | undefined, armedAt: Millis): readonly OwnCall[] | undefined {
  return calls?.map(({ startedAt, endedAt, ...call }) => ({
    ...call,
    startedAt: startedAt - armedAt,
    endedAt: endedAt === undefined ? undefined : endedAt - armedAt,
  }))
}

/** Polls counts and breakers until `endsAt`. Stops early when a fault has ended, and adds a flaw. */
async function watch(
  { faults, flaws, breakers }: Collected,
  endsAt: Millis,
  look: () => Promise<readonly string[]>,
  { gateway, clock, stop, say, status }: RunParts,
): Promise<void> {
  const startedAt = clock.now()
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
    breakers.push({ at: clock.now(), open: await look() })
    if (clock.now() >= endsAt) return
    const line = progress(faults, Math.max(0, endsAt - clock.now()))
    if (status !== undefined) status(`${bar((clock.now() - startedAt) / (endsAt - startedAt))} ${line}`)
    else if (looks % LOOKS_A_LINE === 0) say(line)
  }
}

/** Reads the counts again after the run's calls: calls waiting or retried at the end of the faults had no fate yet. */
async function recount(faults: readonly Counting[], { gateway, clock, stop }: RunParts): Promise<void> {
  const endsAt = clock.now() + FATES_MS
  while (!stop.aborted) {
    for (const fault of faults) {
      const now = await gateway.countsOf(fault.name)
      if (now?.id === fault.id) fault.counts = now
    }
    if (fatesOf(faults).open === 0 || clock.now() >= endsAt) return
    await clock.sleep(LOOK_MS, stop).catch(() => undefined)
  }
}

interface Recovering {
  readonly scenario: Scenario
  readonly breakers: BreakerLook[]
  /** Returns the run's own calls so far, with times relative to the arming of the faults. */
  readonly seen: () => readonly OwnCall[] | undefined
  readonly faultsEndedAt: Millis
  readonly armedAt: Millis
}

/** Polls after the end of the faults until servers and calls have recovered, or until no assertion allows more time. */
async function watchRecovery(
  { scenario, breakers, seen, faultsEndedAt, armedAt }: Recovering,
  look: () => Promise<readonly string[]>,
  { clock, stop, status }: RunParts,
): Promise<void> {
  const longest = aftermathOf(scenario.assert)
  if (longest === 0) return
  const from = armedAt + faultsEndedAt
  const endsAt = from + longest + LATE_MS
  while (!stop.aborted && clock.now() < endsAt) {
    const open = await look()
    breakers.push({ at: clock.now(), open })
    const calls = seen()
    // Waits for twice as many good answers as a steady state needs, so the steady state is not an accident.
    const isSteady =
      calls === undefined || recoveryOf({ calls, faultsEndedAt }).steady.length >= 2 * stableCount(calls)
    if (open.length === 0 && isSteady) return
    status?.(`${bar((clock.now() - from) / (endsAt - from))} waiting for the recovery`)
    await clock.sleep(LOOK_MS, stop).catch(() => undefined)
  }
}

/**
 * Reads current metrics, not cached ones. Resolves to undefined when no assertion needs metrics, or when the gateway
 * caches metrics too long.
 */
async function counters(
  { assert }: Scenario,
  servers: readonly string[],
  { gateway, clock, stop }: RunParts,
): Promise<Counted | undefined> {
  if (!assertsCounts(assert)) return undefined
  const ageMs = await gateway.metricsAge()
  if (ageMs > MAX_METRICS_AGE_MS) return undefined
  if (ageMs > 0) await clock.sleep(ageMs, stop).catch(() => undefined)
  return gateway.counters(servers)
}

/**
 * Returns the minimum number of calls at hit servers that the gateway must have counted; at least 1, also if only other
 * clients make calls.
 */
function endedCalls(calls: readonly OwnCall[] = []): number {
  const ended = calls.filter(
    ({ isHit, endedAt, ending }) => isHit && endedAt !== undefined && ending !== UNANSWERED,
  )
  return Math.max(1, ended.length)
}

/**
 * Returns the increase of the counts; undefined when the gateway counted fewer than `calls`, so the counts prove
 * nothing.
 */
function increaseOver(before: Counted, after: Counted, calls: number): Counted | undefined {
  const counted = increase(before, after)
  return counted.calls >= calls ? counted : undefined
}

function increase(before: Counted, after: Counted): Counted {
  const each = (from: Readonly<Record<string, number>>, to: Readonly<Record<string, number>>) =>
    Object.fromEntries(Object.entries(to).map(([key, count]) => [key, count - (from[key] ?? 0)]))
  return {
    calls: after.calls - before.calls,
    attempts: after.attempts - before.attempts,
    retries: after.retries - before.retries,
    rejections: each(before.rejections, after.rejections),
    verdicts: each(before.verdicts, after.verdicts),
  }
}

function fatesOf(faults: readonly Injected[]): Fates {
  const sum = summing(faults)
  return {
    masked: sum(({ masked }) => masked),
    delayed: sum(({ delayed }) => delayed),
    surfaced: sum(({ surfaced }) => surfaced),
    escaped: sum(({ escaped }) => escaped),
    notReached: sum(({ notReached }) => notReached),
    open: sum(openFates),
  }
}

function progress(faults: readonly Injected[], leftMs: Millis): string {
  const hits = faults.map(({ name, counts }) => `${name} ${counts?.injected ?? 0}`).join(', ')
  return `${seconds(leftMs)} left; injected: ${hits}`
}

/**
 * Clears the faults not yet marked as cleared, and marks them. After a stop, a failed clear is not retried: if the
 * gateway does not answer, the fault ends with its lease.
 */
async function clearAll(faults: Counting[], { gateway, say, stop }: RunParts): Promise<void> {
  const left = faults.filter(({ isCleared }) => isCleared !== true)
  for (const fault of left) Object.assign(fault, { isCleared: true, whenCleared: fault.counts })
  const clear = async ({ name, id }: Counting) => {
    for (let tries = 1; ; tries++) {
      try {
        return await gateway.clear(id)
      } catch (error) {
        if (tries < CLEAR_TRIES && !stop.aborted) continue
        return say(`cannot clear ${name} (${id}), but it ends by itself soon: ${(error as Error).message}`)
      }
    }
  }
  await Promise.all(left.map(clear))
}

/**
 * Returns a reason if the faults hit calls but changed no outcome, so a failed run proves nothing; undefined if they
 * had any effect.
 */
export function withoutEffect(faults: readonly Injected[]): string | undefined {
  const sum = summing(faults)
  const masked = sum((counts) => counts.masked)
  const effects = sum(
    (counts) =>
      counts.delayed +
      counts.surfaced +
      counts.escaped +
      counts.resent +
      counts.rejections +
      openFates(counts),
  )
  if (masked === 0 || effects > 0) return undefined
  return `the faults hit ${numbered(masked, 'call')} and changed neither the outcome nor the time of any`
}

const summing = (faults: readonly Pick<Injected, 'counts'>[]) => (count: (counts: FaultCounts) => number) =>
  faults.reduce((total, { counts }) => total + (counts === undefined ? 0 : count(counts)), 0)

/**
 * Returns the number of calls that the faults still held when cleared, if no hit call had ended before; else 0. It is
 * unknown how a held call would have ended.
 */
function onlyHeld(faults: readonly Injected[]): number {
  const sum = summing(faults.map(({ whenCleared }) => ({ counts: whenCleared })))
  const held = sum((counts) => Math.min(counts.hits, counts.concurrent))
  const ended = sum(({ masked, delayed, surfaced, escaped }) => masked + delayed + surfaced + escaped)
  return ended > 0 || sum((counts) => counts.hits) > held ? 0 : held
}

function without(faults: readonly Injected[], mode: string): string[] {
  const sum = summing(faults)
  // Faults can also hit the gateway's own requests, such as lists; these requests do not count as calls of agents.
  const hits = sum((counts) => counts.hits)
  const held = onlyHeld(faults)
  if (held > 0) return [`no hit call has ended: ${held} were still held when the faults were cleared`]
  if (hits > 0) return []
  const own = sum(({ discovery }) => discovery.hits)
  if (mode === 'shadow') return ['nothing was injected: chaos.mode is shadow']
  const decided = sum((counts) => counts.decided)
  if (own > 0)
    return [`no agent's call was hit, only ${own} of the gateway's own requests. Is there any traffic?`]
  if (decided === 0) return ['nothing was injected: no call matched. Is there any traffic to these servers?']
  const late = sum(({ notReached }) => notReached)
  if (late > 0) return [`no call was hit: ${late} selected calls were over before the faults took effect`]
  const unfit = sum(({ notApplicable }) => notApplicable)
  if (unfit > 0)
    return [
      `nothing was injected: the fault had nothing to change in ${unfit} of ${numbered(decided, 'matching call')}, such as no long enough text`,
    ]
  const reasons = 'no call was drawn while the faults were active, or the tools may write (--allow-writes)'
  return [`nothing was injected into ${numbered(decided, 'matching call')}: ${reasons}`]
}
