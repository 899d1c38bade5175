import type { Millis } from '../../../mesh/clock.ts'

/**
 * A call made by the run. In `Evidence`, times count from the arming of the faults; in `Traffic`, they are clock times.
 */
export interface OwnCall {
  readonly server: string
  readonly tool: string
  /** True if the call went to a target server of the faults. */
  readonly isHit: boolean
  readonly startedAt: Millis
  /** Undefined when the call had no answer at the end of the run. */
  readonly endedAt: Millis | undefined
  /** How the call ended, such as `result`, `tool error` or `BW_BREAKER_OPEN`. */
  readonly ending: string
}

/** Ending of a call with a broken connection: the call may never have reached the gateway. */
export const UNANSWERED = 'connection broken'

/** One poll of the breakers of the hit servers. `open` has each breaker that is not closed, as `server/tool`. */
export interface BreakerLook {
  readonly at: Millis
  readonly open: readonly string[]
}

export interface Fates {
  readonly masked: number
  readonly delayed: number
  readonly surfaced: number
  readonly escaped: number
  readonly notReached: number
  /** Faults injected into unfinished calls: each fault can still get any of the five fates. */
  readonly open: number
}

/** Increases of the hit servers' metrics, from before the faults to the end of the run. */
export interface Counted {
  /** Agents' tool calls, and their tries at the servers. */
  readonly calls: number
  readonly attempts: number
  readonly retries: number
  /** Rejections by a policy, by reason. */
  readonly rejections: Readonly<Record<string, number>>
  /** Tries by verdict on their reply. */
  readonly verdicts: Readonly<Record<string, number>>
}

/** Observations of a run. Times are in milliseconds since the faults were armed. */
export interface Evidence {
  /** Undefined when the run made no calls. */
  readonly calls: readonly OwnCall[] | undefined
  /** All other servers of the gateway, called or not. */
  readonly others: readonly string[]
  readonly breakers: readonly BreakerLook[]
  readonly fates: Fates
  /** Undefined when the metrics could not be read in time. */
  readonly counted: Counted | undefined
  /** Tools on `/mcp` before the faults but not during them; undefined when not observed. */
  readonly unlisted: readonly string[] | undefined
  /** Time at which the last fault stopped hitting calls: the end of its window, or the time when it was cleared. */
  readonly faultsEndedAt: Millis
  readonly clearedAt: Millis
  readonly endedAt: Millis
}

/** Minimum number of calls for a meaningful share or percentile. */
export const FEWEST_CALLS = 5

/**
 * Longest duration of a healthy call, in milliseconds. The run does not call slower tools, and slower calls are not
 * good.
 */
export const PROMPT_MS: Millis = 2_000

/**
 * Returns how many of a run's own calls got a good answer, as known at `now`; undefined when too few have ended. An
 * unfinished call at a server that is not hit counts as not good once it has taken longer than `PROMPT_MS`. An
 * unfinished call at a hit server counts as open once it has taken longer than every good answer. All other unfinished
 * calls are left out.
 */
export function goodOf(
  calls: readonly OwnCall[],
  now: Millis,
): { readonly good: number; readonly open: number; readonly all: number } | undefined {
  const good = calls.filter((call) => call.endedAt !== undefined && isGood(call))
  const slowest = good.reduce(
    (most, { startedAt, endedAt = now }) => Math.max(most, endedAt - startedAt),
    PROMPT_MS,
  )
  const held = calls.filter(({ endedAt }) => endedAt === undefined)
  const late = held.filter(({ isHit, startedAt }) => !isHit && now - startedAt > PROMPT_MS).length
  const open = held.filter(({ isHit, startedAt }) => isHit && now - startedAt > slowest).length
  const ended = calls.length - held.length + late
  return ended < FEWEST_CALLS ? undefined : { good: good.length, open, all: ended + open }
}

export const isGood = ({ ending }: OwnCall): boolean => ending === 'result'

/**
 * Returns the time in which a share of the calls ended; undefined when too few have. An unfinished call counts only if
 * it has already taken longer than `bound`; otherwise it may still end on either side of `bound`.
 */
export function quantile(
  share: number,
  calls: readonly OwnCall[],
  bound: Millis,
  now: Millis,
): Millis | undefined {
  const took = calls.flatMap(({ startedAt, endedAt }) => {
    const ms = (endedAt ?? now) - startedAt
    return endedAt !== undefined || ms > bound ? [ms] : []
  })
  if (took.length < FEWEST_CALLS) return undefined
  return took.sort((a, b) => a - b)[Math.ceil(took.length * share) - 1]
}

/**
 * Returns the calls at hit servers begun during the faults, or during a part of that time. A call that ended after the
 * clearing of the faults is returned as unfinished.
 */
export function callsDuring(
  { calls, faultsEndedAt, clearedAt }: Pick<Evidence, 'calls' | 'faultsEndedAt' | 'clearedAt'>,
  {
    isHit = true,
    from = 0,
    to = faultsEndedAt,
  }: { isHit?: boolean; from?: Millis | undefined; to?: Millis | undefined } = {},
): readonly OwnCall[] {
  const meant = (calls ?? []).filter(
    (call) => call.isHit === isHit && call.startedAt >= from && call.startedAt < to,
  )
  return meant.map((call) =>
    call.endedAt === undefined || call.endedAt > clearedAt ? { ...call, endedAt: undefined } : call,
  )
}

/** The time at which the breaker of a tool was first seen open, and the number of the tool's calls begun before. */
export interface Opening {
  readonly tool: string
  /** Undefined when the breaker stayed closed. */
  readonly at: Millis | undefined
  readonly calls: number
}

const OPEN = 'BW_BREAKER_OPEN'
const keyOf = ({ server, tool }: OwnCall): string => `${server}/${tool}`

/**
 * Returns an entry for every tool that was called at a hit server or had an open breaker before the end of the faults.
 */
export function openings(evidence: Pick<Evidence, 'calls' | 'breakers' | 'faultsEndedAt'>): Opening[] {
  const { breakers, faultsEndedAt } = evidence
  const calls = (evidence.calls ?? []).filter(({ isHit, startedAt }) => isHit && startedAt < faultsEndedAt)
  const looks = breakers.filter(({ at }) => at <= faultsEndedAt)
  const tools = new Set([...calls.map(keyOf), ...looks.flatMap(({ open }) => open)])
  return [...tools].sort().map((tool) => {
    const own = calls.filter((call) => keyOf(call) === tool)
    const rejected = own.find(({ ending }) => ending === OPEN)
    const seen = looks.find(({ open }) => open.includes(tool))
    const times = [rejected?.endedAt, seen?.at].filter((at) => at !== undefined)
    const before = [rejected?.startedAt, seen?.at].filter((at) => at !== undefined)
    const since = Math.min(...before)
    return {
      tool,
      at: times.length === 0 ? undefined : Math.min(...times),
      calls: own.filter(({ startedAt }) => startedAt < since).length,
    }
  })
}

/**
 * Returns the time from the end of the faults until all breakers were closed and stayed closed; undefined when some did
 * not.
 */
export function closedAfter({ calls, breakers, faultsEndedAt }: Evidence): Millis | undefined {
  const later = breakers.filter(({ at }) => at >= faultsEndedAt)
  const lastOpen = later.findLastIndex(({ open }) => open.length > 0)
  const closed = later[lastOpen + 1]
  if (closed === undefined) return undefined
  const rejected = (calls ?? []).filter(
    ({ isHit, ending, startedAt }) => isHit && ending === OPEN && startedAt >= closed.at,
  )
  return rejected.length > 0 ? undefined : Math.max(0, closed.at - faultsEndedAt)
}

/** A server's recovery, by the calls begun after the faults. Times are from the end of the faults. */
export interface Recovery {
  readonly firstGoodMs: Millis | undefined
  /**
   * Start of the first call after the last bad answer; undefined when fewer than `stableCount` good answers followed.
   */
  readonly steadyMs: Millis | undefined
  readonly steady: readonly OwnCall[]
}

export function recoveryOf({ calls, faultsEndedAt }: Pick<Evidence, 'calls' | 'faultsEndedAt'>): Recovery {
  const after = (calls ?? []).filter(
    ({ isHit, startedAt, endedAt }) => isHit && startedAt >= faultsEndedAt && endedAt !== undefined,
  )
  const good = after.filter(isGood).map(({ endedAt = Infinity }) => endedAt)
  const steady = after.slice(after.findLastIndex((call) => !isGood(call)) + 1)
  const isEnough = steady.length >= stableCount(calls ?? [])
  const first = steady[0]
  return {
    firstGoodMs: good.length === 0 ? undefined : Math.min(...good) - faultsEndedAt,
    steadyMs: isEnough && first !== undefined ? first.startedAt - faultsEndedAt : undefined,
    steady: isEnough ? steady : [],
  }
}

/**
 * Returns how many good answers in a row prove a steady state: one per called tool of the hit servers, at least
 * `FEWEST_CALLS`.
 */
export function stableCount(calls: readonly OwnCall[]): number {
  return Math.max(FEWEST_CALLS, new Set(calls.filter(({ isHit }) => isHit).map(keyOf)).size)
}
