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
  /** Called at the first report of a task's outcome: once for each arm of the task, or once with an empty arm. */
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
 * The tasks of agents. A task ends after a time without calls, or when its outcome is reported. The gateway then counts
 * the task, its number of tool calls (TCAF), and if any of its calls failed (blast radius). A later report still finds
 * the task while the task is remembered.
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

  /** Applies the settings of a new config. */
  tune(settings: IntentSettings): void {
    this.#open.tune(settings)
    this.#known.tune(settings)
  }

  /** Begins a tool call: finds or opens the call's task, and stores the task in the call's record. */
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

  /** Ends a tool call for which `begin` was called. */
  end(record: CallRecord, outcome: Outcome): void {
    const intent = record.intent as KnownIntent | undefined
    if (intent === undefined) return
    if (wentWrong(outcome, record)) intent.failed++
    if (--intent.underWay > 0 || !intent.isOpen) return
    if (intent.outcome === undefined) this.#open.touch(intent)
    else this.#close(intent)
  }

  /**
   * Stores the reported outcome of a task; only the first report counts. The task ends now, or with its last call in
   * progress.
   */
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

  /** Counts all open tasks as ended, because the process ends. */
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

  /**
   * Returns the key of a call's task. The same name in two arms of one experiment means two tasks. Calls outside of the
   * experiment belong to the first of these tasks.
   */
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
    // Creates the other series at 0 too, because Prometheus misses the first increase of a new series.
    intents.series({ outcome: failed > 0 ? 'ok' : 'failed', arm, source })
    intentToolCalls.series({ arm, source }).observe(calls)
    if (outcome !== undefined) this.#countOutcome(intent, outcome)
  }

  /** Counts the reported outcome of a task once, by outcome and by whether a call failed. */
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

/** True when two arms are different arms of the same experiment. */
function areTwins(one: string, other: string): boolean {
  if (one === '' || other === '' || one === other) return false
  return one.slice(0, one.indexOf('/')) === other.slice(0, other.indexOf('/'))
}

/**
 * Precision of the queue's order, in milliseconds. So a task with many calls does not move to the end with every call.
 */
const PLACE_MS: Millis = 100

interface OpenIntentsParts {
  readonly clock: Clock
  /** Called when a task has had no calls for the idle time; the task is no longer open. */
  readonly over: (intent: KnownIntent) => void
  /** Called in place of `over` for a task that was ended early, because too many tasks were open. */
  readonly evicted: (intent: KnownIntent) => void
}

/** The open tasks, in a queue by the time of their last call. */
class OpenIntents {
  readonly #parts: OpenIntentsParts
  /** The open tasks by key; the task that has been idle for the longest time comes first. */
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

  /** Sets the limits: at most `max` open tasks, each until it has had no calls for `idle` milliseconds. */
  tune({ idle, max }: { readonly idle: Millis; readonly max: number }): void {
    this.#idleMs = idle
    this.#max = max
  }

  get(key: string): KnownIntent | undefined {
    return this.#byKey.get(key)
  }

  /** Adds a task. If there are too many, first ends the task that has been idle for the longest time. */
  add(intent: KnownIntent): void {
    if (this.#byKey.size >= this.#max) this.#evict()
    this.#place(intent, this.#parts.clock.now())
  }

  /** Moves a task to the end of the queue. The place of a task with calls in progress does not matter. */
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

  /** Ends the first task of the queue early, even if it has calls in progress. */
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
  /** Number of calls that failed for the agent. */
  readonly failed: number
  /** True when the task has ended; false while calls are in progress. */
  readonly over: boolean
}

/** Reasons for not counting a report. */
type Unlinked =
  /** No task of this name is open or remembered. */
  | 'unknown'
  | 'ambiguous'
  /** An earlier report has the opposite outcome. */
  | 'contradicted'

export type ReportAnswer =
  | {
      readonly linked: true
      /** True when the same outcome was reported before; the gateway counts it once. */
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

/**
 * Returns the reason for not counting a report that matches these tasks; undefined for a single task without another
 * outcome.
 */
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
