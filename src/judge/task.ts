import type { RecordedCall, RecordedOutcome } from '../telemetry/recording/format.ts'
import { type Contract, contractOf, type KindContract } from './contract.ts'

/** A line of a recording, from 1. */
export interface Place {
  readonly file: string
  readonly line: number
}

/** A call of a task. */
export interface JudgedCall extends RecordedCall {
  readonly place: Place
  /** Begin and end, in whole microseconds after the recording began: sums of these are exact. */
  readonly beganAt: number
  readonly endedAt: number
}

/** The unit that is judged. */
export interface Task {
  /** Digest of its name. */
  readonly id: string
  /** In the order of their begins. */
  readonly calls: readonly JudgedCall[]
  /** The calls with the same tool and arguments, by key. */
  readonly byKey: ReadonlyMap<string, readonly JudgedCall[]>
  /** Undefined without a report. */
  readonly outcome: string | undefined
  /** Undefined when no contract covers the task. */
  readonly contract: Contract | undefined
  /** Whether no call of the task is missing. */
  readonly isWhole: boolean
}

/** The parts of a recording that are judged. */
export interface Judged {
  /** In the order of their begins. */
  readonly calls: readonly RecordedCall[]
  readonly places: ReadonlyMap<RecordedCall, Place>
  readonly outcomes: readonly RecordedOutcome[]
  readonly hasGaps: boolean
}

const inMicros = (ms: number) => Math.round(ms * 1_000)

/**
 * Returns the tasks of a recording, in the order of their first calls. Calls without a task are left out. A task whose
 * outcome was reported several times ran several times: calls that begin after a report belong to the next run.
 */
export function tasksIn(
  { calls, places, outcomes, hasGaps }: Judged,
  kinds: readonly KindContract[],
): readonly Task[] {
  const judged = calls.flatMap((call): JudgedCall[] => {
    if (call.task === undefined) return []
    const place = places.get(call)!
    return [{ ...call, place, beganAt: inMicros(call.at), endedAt: inMicros(call.at + call.tookMs) }]
  })
  const byTask = groupsOf(judged, ({ task = '' }) => task)
  const reports = groupsOf(outcomes, ({ task }) => task)
  return [...byTask].flatMap(([id, all]) =>
    runsOf(all, reports.get(id) ?? []).map(({ calls, outcome }) => ({
      id,
      calls,
      byKey: groupsOf(calls, ({ key }) => key),
      outcome,
      contract: contractOf(calls, kinds),
      // The first recorded call of a task that is older than the recording is unwatched.
      isWhole: !hasGaps && calls[0]?.unwatched !== true,
    })),
  )
}

/** Returns the items by key, in their order. */
function groupsOf<Item>(items: readonly Item[], keyOf: (item: Item) => string): Map<string, Item[]> {
  const groups = new Map<string, Item[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group === undefined) groups.set(keyOf(item), [item])
    else group.push(item)
  }
  return groups
}

interface Run {
  readonly calls: readonly JudgedCall[]
  readonly outcome: string | undefined
}

function runsOf(calls: readonly JudgedCall[], reports: readonly RecordedOutcome[]): Run[] {
  const [only] = reports
  if (reports.length < 2) return [{ calls, outcome: only?.outcome }]
  const ends = reports.toSorted((one, other) => one.at - other.at)
  const runs: Run[] = []
  let next = 0
  for (const { at, outcome } of [...ends, unreported]) {
    const own: JudgedCall[] = []
    for (let call = calls[next]; call !== undefined && call.beganAt <= inMicros(at); call = calls[++next])
      own.push(call)
    if (own.length > 0) runs.push({ calls: own, outcome })
  }
  return runs
}

/** Stands for the missing report of a run that goes on. */
const unreported = { at: Infinity, outcome: undefined }
