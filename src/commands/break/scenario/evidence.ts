import type { Millis } from '../../../mesh/clock.ts'

/** A call that a run made itself. Times are on the clock of whoever holds it. */
export interface OwnCall {
  readonly server: string
  readonly tool: string
  /** Whether it went to a server that the faults are aimed at. */
  readonly isHit: boolean
  readonly startedAt: Millis
  /** Undefined when it was given up at the end of the run. */
  readonly endedAt: Millis | undefined
  /** In a word, such as `result`, `tool error` or `BW_BREAKER_OPEN`. */
  readonly ending: string
}

/** How a call ended whose connection broke: it may never have come to the gateway. */
export const UNANSWERED = 'connection broken'

/** Breakers of the hit servers that were not closed, as `server/tool`, when somebody looked. */
export interface BreakerLook {
  readonly at: Millis
  readonly open: readonly string[]
}

/** The faults of a run, counted by what became of them. */
export interface Fates {
  readonly masked: number
  readonly delayed: number
  readonly surfaced: number
  readonly escaped: number
  readonly notReached: number
  /** Faults at calls that have not ended: each of these can still get any of the five fates. */
  readonly open: number
}

/** Increases of the metrics of the hit servers, from before the faults to the end of the run. */
export interface Counted {
  /** Tool calls of agents, and tries of them at the servers. */
  readonly calls: number
  readonly attempts: number
  /** Calls that were sent again. */
  readonly retries: number
  /** By why a policy kept a call from its server. */
  readonly rejections: Readonly<Record<string, number>>
  /** Tries by how good their reply was. */
  readonly verdicts: Readonly<Record<string, number>>
}

/** Observations of a run. Times are in milliseconds since the faults were armed. */
export interface Evidence {
  /** Undefined when it made no calls itself. */
  readonly calls: readonly OwnCall[] | undefined
  /** The servers of the gateway that are not hit, whether it called them or not. */
  readonly others: readonly string[]
  readonly breakers: readonly BreakerLook[]
  readonly fates: Fates
  /** Undefined when they could not be read in time. */
  readonly counted: Counted | undefined
  /** Tools on `/mcp` that were there before and not while the faults lasted; undefined when nobody looked. */
  readonly unlisted: readonly string[] | undefined
  /** When the last fault stopped hitting calls: because its window was over, or because it was cleared. */
  readonly faultsEndedAt: Millis
  /** When all of them were cleared. */
  readonly clearedAt: Millis
  readonly endedAt: Millis
}

/** How often agents may be asked for, at the least, before a share or a percentile says anything. */
export const FEWEST_CALLS = 5

/** How long a tool may take while nothing is wrong, in milliseconds: slower ones are not called, and what still takes longer is not good. */
export const PROMPT_MS: Millis = 2_000

/**
 * How many of a run's own calls got a good answer, as far as is known at `now`; undefined when too few have ended. Calls that
 * have not ended are left out while they are young. From `PROMPT_MS` on they are not good at servers that are not hit. At hit
 * servers, where good answers may take their time as well, they hang, and are open, once they have taken longer than each of these.
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
 * The time within which a share of the calls have ended; undefined when too few have. A call that has not ended counts as soon
 * as it has taken longer than `bound`: on which side of it others will be, nobody knows.
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

/** The calls at hit servers that began while faults lasted, or within a part of that time; as they stood when all were cleared. */
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

/** Where and when a breaker was first seen open, and how many calls of its tool had begun by then. */
export interface Opening {
  readonly tool: string
  /** Undefined: it stayed closed. */
  readonly at: Millis | undefined
  readonly calls: number
}

const OPEN = 'BW_BREAKER_OPEN'
const keyOf = ({ server, tool }: OwnCall): string => `${server}/${tool}`

/** Every tool that was called at a hit server, or whose breaker was seen open, up to the end of the faults. */
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

/** When all breakers were closed again for good, from the end of the faults; undefined when they are not. */
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

/** How a server came back, by the calls that began after the faults. Times are from their end. */
export interface Recovery {
  readonly firstGoodMs: Millis | undefined
  /** When the first call began after which all got good answers; undefined when too few of them did. */
  readonly steadyMs: Millis | undefined
  /** These calls. */
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

/** How many good answers in a row make a steady state: every tool at hit servers has given one. */
export function stableCount(calls: readonly OwnCall[]): number {
  return Math.max(FEWEST_CALLS, new Set(calls.filter(({ isHit }) => isHit).map(keyOf)).size)
}
