import type { Call, CallRecord, Outcome } from '../mesh/call.ts'
import { wentWrong } from '../mesh/classify.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import type { CallIntent } from '../mesh/record.ts'
import { taskOf } from '../protocol/task.ts'
import {
  armsOf,
  callsOf,
  failedOf,
  type IntentOutcome,
  type IntentQuery,
  keyOf,
  type KnownIntent,
  KnownIntents,
  newIntent,
} from './intents/intent.ts'
import type { Metrics } from './metrics.ts'
import type { IntentSettings } from './schema.ts'

interface IntentsParts {
  readonly clock: Clock
  /** Called at the first report of a task's outcome: once for each of the task's arms, or once without an arm. */
  readonly onOutcome?: (intent: KnownIntent, arm: string, outcome: IntentOutcome) => void
  readonly metrics: Pick<
    Metrics,
    | 'intents'
    | 'intentToolCalls'
    | 'intentsUnattributed'
    | 'intentsEvicted'
    | 'intentOutcomes'
    | 'intentOutcomesUnlinked'
  >
}

/**
 * The tasks of agents. A task is over after a quiet time without calls under way, or when its outcome is reported. Then
 * the task is counted, with its number of tool calls (TCAF) and whether any call failed (blast radius). Later reports
 * are linked to the task while the task is remembered.
 */
export class Intents {
  readonly #parts: IntentsParts
  readonly #open: OpenIntents
  readonly #known = new KnownIntents()

  constructor(parts: IntentsParts) {
    this.#parts = parts
    const over = (intent: KnownIntent) => this.#count(intent)
    const evicted = (intent: KnownIntent) => {
      parts.metrics.intentsEvicted.inc()
      over(intent)
    }
    this.#open = new OpenIntents({ clock: parts.clock, over, evicted })
  }

  get size(): number {
    return this.#open.size
  }

  /** Sets the settings for all tasks closed from now on. */
  tune(settings: IntentSettings): void {
    this.#open.tune(settings)
    this.#known.tune(settings)
  }

  /** Begins a tool call: notes in its record the task it belongs to. */
  begin(call: Call): void {
    const { record } = call
    record.intent ??= taskOf(call)
    if (record.intent === undefined) {
      this.#parts.metrics.intentsUnattributed.inc()
      return
    }
    const intent = this.#find(call, record.intent)
    record.intent = intent
    intent.calls++
    intent.underWay++
  }

  /** Ends a tool call begun here. */
  end(record: CallRecord, outcome: Outcome): void {
    const intent = record.intent as KnownIntent | undefined
    if (intent === undefined) return
    if (wentWrong(outcome, record)) intent.failed++
    if (--intent.underWay > 0 || !intent.isOpen) return
    if (intent.outcome === undefined) this.#open.touch(intent)
    else this.#close(intent)
  }

  /** Reports a task's outcome; only the first report counts. The task is over now, or when its calls under way end. */
  report(said: IntentReport): ReportAnswer {
    const found = this.#known.find(said, this.#parts.clock.now())
    const refused = objection(said, found)
    if (refused !== undefined) {
      this.#parts.metrics.intentOutcomesUnlinked.inc({ reason: refused.reason })
      return refused
    }
    const intent = found[0]!
    const repeated = intent.outcome !== undefined
    intent.outcome = said.outcome
    if (!repeated) for (const arm of armsOf(intent)) this.#parts.onOutcome?.(intent, arm, said.outcome)
    if (!repeated && !intent.isOpen) this.#countOutcome(intent, said.outcome)
    else if (intent.isOpen && intent.underWay === 0) this.#close(intent)
    return { linked: true, repeated, task: factsOf(intent) }
  }

  /** Counts all open tasks as over, at the end of the process. */
  closeAll(): void {
    this.#open.clear()
  }

  #find({ tenant, record }: Call, { id, source }: CallIntent): KnownIntent {
    const { arm } = record
    const key = this.#keyFor(keyOf(source, tenant, id), id, arm)
    const known = this.#open.get(key)
    if (known !== undefined) {
      join(known, arm)
      return known
    }
    const earlier = this.#known.get(id, key, this.#parts.clock.now())
    const opened = newIntent({ id, source, tenant, arm, key }, earlier)
    this.#known.add(opened)
    this.#open.add(opened)
    return opened
  }

  /** In two arms of one experiment a name means two tasks; calls outside the experiment belong to the first task. */
  #keyFor(key: string, id: string, arm: string): string {
    if (arm === '') return key
    const first = this.#open.get(key) ?? this.#known.get(id, key, this.#parts.clock.now())
    const isTwin = first !== undefined && armsOf(first).some((other) => areTwins(other, arm))
    return isTwin ? `${key}\n${arm}` : key
  }

  #close(intent: KnownIntent): void {
    this.#open.remove(intent)
    this.#count(intent)
  }

  #count(intent: KnownIntent): void {
    const { intents, intentToolCalls } = this.#parts.metrics
    const { arm, source, failed, calls, outcome } = intent
    intent.isOpen = false
    this.#known.end(intent, this.#parts.clock.now())
    intents.inc({ outcome: failed > 0 ? 'failed' : 'ok', arm, source })
    // Begins at 0: Prometheus misses the first increase of a new series.
    intents.series({ outcome: failed > 0 ? 'ok' : 'failed', arm, source })
    intentToolCalls.series({ arm, source }).observe(calls)
    if (outcome !== undefined) this.#countOutcome(intent, outcome)
  }

  /** Counts, once per task, how the task ended and whether any of its calls failed. */
  #countOutcome(intent: KnownIntent, outcome: IntentOutcome): void {
    const { arm, source } = intent
    const calls = failedOf(intent) > 0 ? 'failed' : 'ok'
    this.#parts.metrics.intentOutcomes.inc({ outcome, calls, arm, source })
  }
}

function join(intent: KnownIntent, arm: string): void {
  if (intent.arm === '') intent.arm = arm
  else if (arm !== '' && !armsOf(intent).includes(arm)) intent.otherArms = [...intent.otherArms, arm]
}

/** Whether two arms are different arms of the same experiment. */
function areTwins(one: string, other: string): boolean {
  if (one === '' || other === '' || one === other) return false
  return one.slice(0, one.indexOf('/')) === other.slice(0, other.indexOf('/'))
}

/** Precision of the queue's order, in milliseconds: a busy task need not move to the end with every call. */
const PLACE_MS: Millis = 100

interface OpenIntentsParts {
  readonly clock: Clock
  /** Called when a task has been quiet for long enough; the task is no longer open. */
  readonly over: (intent: KnownIntent) => void
  /** Called for an evicted task, which is also closed. */
  readonly evicted: (intent: KnownIntent) => void
}

/** Open tasks, waiting to be quiet for a while. */
class OpenIntents {
  readonly #parts: OpenIntentsParts
  /** The task quiet for the longest time comes first. */
  readonly #byKey = new Map<string, KnownIntent>()
  #idleMs: Millis = 30_000
  #max = 10_000
  #cancel: Cancel | undefined

  constructor(parts: OpenIntentsParts) {
    this.#parts = parts
  }

  get size(): number {
    return this.#byKey.size
  }

  /** From now on, keeps at most `max` tasks, each until quiet for `idle` milliseconds. */
  tune({ idle, max }: { readonly idle: Millis; readonly max: number }): void {
    this.#idleMs = idle
    this.#max = max
  }

  get(key: string): KnownIntent | undefined {
    return this.#byKey.get(key)
  }

  /** Adds a task; the task quiet for the longest time makes room. */
  add(intent: KnownIntent): void {
    if (this.#byKey.size >= this.#max) this.#evict()
    this.#place(intent, this.#parts.clock.now())
  }

  /** Moves a task to the end of the queue. While calls of the task are under way, its place does not matter. */
  touch(intent: KnownIntent): void {
    const now = this.#parts.clock.now()
    if (now - intent.placedAt < PLACE_MS) intent.lastAt = now
    else this.#place(intent, now)
  }

  #place(intent: KnownIntent, now: Millis): void {
    intent.lastAt = now
    intent.placedAt = now
    this.#byKey.delete(intent.key)
    this.#byKey.set(intent.key, intent)
    this.#cancel ??= this.#parts.clock.after(this.#idleMs, this.#sweep)
  }

  remove(intent: KnownIntent): void {
    this.#byKey.delete(intent.key)
  }

  clear(): void {
    this.#cancel?.()
    this.#cancel = undefined
    for (const intent of this.#byKey.values()) this.#end(intent)
  }

  readonly #sweep = (): void => {
    const now = this.#parts.clock.now()
    this.#cancel = undefined
    for (const intent of this.#byKey.values()) {
      const leftMs = Math.ceil(intent.lastAt + this.#idleMs - now)
      if (leftMs > 0) {
        this.#cancel = this.#parts.clock.after(leftMs, this.#sweep)
        return
      }
      if (intent.underWay > 0) this.touch(intent)
      else this.#end(intent)
    }
  }

  #end(intent: KnownIntent): void {
    this.remove(intent)
    this.#parts.over(intent)
  }

  /** Evicts a task with calls under way only in its turn: it was quiet before the calls began. */
  #evict(): void {
    for (const oldest of this.#byKey.values()) {
      this.remove(oldest)
      this.#parts.evicted(oldest)
      return
    }
  }
}

/** A report of how a task ended. */
export interface IntentReport extends IntentQuery {
  readonly outcome: IntentOutcome
}

interface IntentFacts {
  readonly source: KnownIntent['source']
  readonly tenant: string
  readonly arm: string
  readonly calls: number
  /** Failed calls, as the agent saw the calls. */
  readonly failed: number
  /** Whether the task is over; false while calls are under way. */
  readonly over: boolean
}

/** Why a report is not counted. */
type Unlinked =
  /** No task of this name is known, or known any more. */
  | 'unknown'
  | 'ambiguous'
  /** The opposite was reported before. */
  | 'contradicted'

export type ReportAnswer =
  | {
      readonly linked: true
      /** Whether the same was reported before; counted once. */
      readonly repeated: boolean
      readonly task: IntentFacts
    }
  | {
      readonly linked: false
      readonly reason: Unlinked
      readonly error: string
      /** The tasks the report may be about; only a few. */
      readonly tasks: readonly IntentFacts[]
    }

/** Most tasks in an answer. */
const SHOWN = 10

function factsOf(intent: KnownIntent): IntentFacts {
  const { source, tenant, arm, isOpen } = intent
  return { source, tenant, arm, calls: callsOf(intent), failed: failedOf(intent), over: !isOpen }
}

/** Why a report that matches these tasks cannot be counted; undefined for a single match without a contradiction. */
function objection(
  { outcome }: IntentReport,
  found: readonly KnownIntent[],
): (ReportAnswer & { linked: false }) | undefined {
  const tasks = found.slice(0, SHOWN).map(factsOf)
  const unlinked = (reason: Unlinked, error: string) => ({ linked: false, reason, error, tasks }) as const
  const [intent] = found
  if (intent === undefined) return unlinked('unknown', 'no task of this name is open or remembered')
  if (found.length > 1)
    return unlinked('ambiguous', `${found.length} tasks have this name: choose one by source, tenant or arm`)
  if (intent.outcome === undefined || intent.outcome === outcome) return undefined
  return unlinked(
    'contradicted',
    `an earlier report says that the task ${intent.outcome}: the first report counts`,
  )
}
