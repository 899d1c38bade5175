import type { DecisionEntry, JournalEntry } from '../../chaos/journal/entry.ts'

/** Numbers of calls that matched a fault, for one target or for all targets. */
export interface HitCounts {
  decided: number
  hit: number
  /** Calls that the fault did not hit only because of shadow mode. */
  wouldHit: number
}

export interface FaultHits extends HitCounts {
  readonly fault: string
  readonly type: string
  /** Number of calls not hit, by the reason. */
  readonly because: Readonly<Record<string, number>>
  readonly targets: readonly (HitCounts & {
    readonly server: string
    /** The tool; for requests other than tool calls, the method. */
    readonly tool: string
  })[]
}

/** The number of calls that a plan hit, or would have hit without shadow mode, in a span of time. */
export interface WouldHit {
  /** In milliseconds since the Unix epoch. */
  readonly from: number
  readonly to: number
  /** False when memory no longer holds all entries of the time span. */
  readonly complete: boolean
  readonly faults: readonly FaultHits[]
}

type Targets = Map<string, FaultHits['targets'][number]>

const none = (): HitCounts => ({ decided: 0, hit: 0, wouldHit: 0 })

function count(counts: HitCounts, { because }: DecisionEntry): void {
  counts.decided++
  if (because === undefined) counts.hit++
  if (because === 'shadow') counts.wouldHit++
}

/** Counts the entries of the last `ms` milliseconds before `to`. */
export function wouldHit(entries: readonly JournalEntry[], to: number, ms: number): WouldHit {
  const from = to - ms
  const faults = new Map<string, FaultHits & { because: Record<string, number> }>()
  const targets = new Map<string, Targets>()
  for (const entry of entries) {
    if (entry.kind !== 'decision' || entry.at < from) continue
    const { fault, type, because, call } = entry
    const tool = call.tool ?? call.method
    let known = faults.get(fault)
    if (known === undefined) faults.set(fault, (known = { fault, type, ...none(), because: {}, targets: [] }))
    let places = targets.get(fault)
    if (places === undefined) targets.set(fault, (places = new Map() as Targets))
    const key = JSON.stringify([call.server, tool])
    let place = places.get(key)
    if (place === undefined) places.set(key, (place = { server: call.server, tool, ...none() }))
    count(known, entry)
    count(place, entry)
    if (because !== undefined) known.because[because] = (known.because[because] ?? 0) + 1
  }
  const oldest = entries[0]
  return {
    from,
    to,
    complete: oldest === undefined || oldest.seq === 1 || oldest.at < from,
    faults: [...faults.values()].map((known) => ({
      ...known,
      targets: [...(targets.get(known.fault)?.values() ?? [])],
    })),
  }
}
