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
  /** Hears the first time that somebody says how a task ended, for each arm that it is in, or once for none. */
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
 * The tasks of agents. One is over when none of its calls is under way and none has ended for a while, or somebody has
 * said how it ended; then it is counted, with the number of its tool calls (TCAF) and whether any of them failed (blast
 * radius). What is said later is linked to that as long as the task is remembered.
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

  /** How many are open. */
  get size(): number {
    return this.#open.size
  }

  /** Settings for all that is closed from here on. */
  tune(settings: IntentSettings): void {
    this.#open.tune(settings)
    this.#known.tune(settings)
  }

  /** A tool call begins: its record is told which task it belongs to. */
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

  /** A tool call that began here has ended. */
  end(record: CallRecord, outcome: Outcome): void {
    const intent = record.intent as KnownIntent | undefined
    if (intent === undefined) return
    if (wentWrong(outcome, record)) intent.failed++
    if (--intent.underWay > 0 || !intent.isOpen) return
    if (intent.outcome === undefined) this.#open.touch(intent)
    else this.#close(intent)
  }

  /**
   * Somebody says how a task ended: the first to say so counts, once. It is over now, or as soon as those of its calls
   * are that are under way.
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

  /** Counts all that are open as if they were over: for the end of the process. */
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
   * In two arms of one experiment a name is that of two tasks; calls in no arm, and in arms of other experiments, belong to the
   * first of them.
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

  /** The task is closed. */
  #count(intent: KnownIntent): void {
    const { intents, intentToolCalls } = this.#parts.metrics
    const { arm, source, failed, calls, outcome } = intent
    intent.isOpen = false
    this.#known.end(intent, this.#parts.clock.now())
    intents.inc({ outcome: failed > 0 ? 'failed' : 'ok', arm, source })
    // At 0 from the beginning: to Prometheus the first of a series that is new has not happened.
    intents.series({ outcome: failed > 0 ? 'ok' : 'failed', arm, source })
    intentToolCalls.series({ arm, source }).observe(calls)
    if (outcome !== undefined) this.#countOutcome(intent, outcome)
  }

  /** How it ended, and whether calls of it failed: once for a task. */
  #countOutcome(intent: KnownIntent, outcome: IntentOutcome): void {
    const { arm, source } = intent
    const calls = failedOf(intent) > 0 ? 'failed' : 'ok'
    this.#parts.metrics.intentOutcomes.inc({ outcome, calls, arm, source })
  }
}

/** A call of a task is in this arm. */
function join(intent: KnownIntent, arm: string): void {
  if (intent.arm === '') intent.arm = arm
  else if (arm !== '' && !armsOf(intent).includes(arm)) intent.otherArms = [...intent.otherArms, arm]
}

/** Whether two arms are different ones of the same experiment. */
function areTwins(one: string, other: string): boolean {
  if (one === '' || other === '' || one === other) return false
  return one.slice(0, one.indexOf('/')) === other.slice(0, other.indexOf('/'))
}

/** How precisely the line is in order, in milliseconds: a busy task need not go to its end with every call. */
const PLACE_MS: Millis = 100

interface OpenIntentsParts {
  readonly clock: Clock
  /** One was quiet for long enough, and is open no more. */
  readonly over: (intent: KnownIntent) => void
  /** A task that was evicted is closed, too. */
  readonly evicted: (intent: KnownIntent) => void
}

/** The tasks that are not over, waiting for them to be quiet for a while. */
class OpenIntents {
  readonly #parts: OpenIntentsParts
  /** The one that was quiet for the longest time comes first. */
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

  /** From now on, at most `max`, each until it was quiet for `idle` milliseconds. */
  tune({ idle, max }: { readonly idle: Millis; readonly max: number }): void {
    this.#idleMs = idle
    this.#max = max
  }

  get(key: string): KnownIntent | undefined {
    return this.#byKey.get(key)
  }

  /** Takes in one more; the one that was quiet for the longest time makes room for it. */
  add(intent: KnownIntent): void {
    if (this.#byKey.size >= this.#max) this.#evict()
    this.#place(intent, this.#parts.clock.now())
  }

  /** It goes to the end of the line. While calls of it are under way, its place does not matter. */
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

  /** All are over now. */
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

  /** Takes one with calls under way only if it is its turn: it was quiet before they began. */
  #evict(): void {
    for (const oldest of this.#byKey.values()) {
      this.remove(oldest)
      this.#parts.evicted(oldest)
      return
    }
  }
}

/** Somebody says how a task ended. */
export interface IntentReport extends IntentQuery {
  readonly outcome: IntentOutcome
}

/** The gateway's view of a task. */
interface IntentFacts {
  readonly source: KnownIntent['source']
  readonly tenant: string
  readonly arm: string
  readonly calls: number
  /** Calls that went wrong, as the agent saw them. */
  readonly failed: number
  /** Whether it is over: it is not as long as calls of it are under way. */
  readonly over: boolean
}

/** Why a report is not counted. */
type Unlinked =
  /** No such task is known, or is any more. */
  | 'unknown'
  /** Several tasks have this name. */
  | 'ambiguous'
  /** The opposite was reported before. */
  | 'contradicted'

export type ReportAnswer =
  | {
      readonly linked: true
      /** Whether the same was reported before: it is counted once. */
      readonly repeated: boolean
      readonly task: IntentFacts
    }
  | {
      readonly linked: false
      readonly reason: Unlinked
      readonly error: string
      /** The tasks that it may be about; not more than a few. */
      readonly tasks: readonly IntentFacts[]
    }

/** Most tasks that an answer shows. */
const SHOWN = 10

function factsOf(intent: KnownIntent): IntentFacts {
  const { source, tenant, arm, isOpen } = intent
  return { source, tenant, arm, calls: callsOf(intent), failed: failedOf(intent), over: !isOpen }
}

/** Why a report that fits these tasks cannot be counted; undefined if it fits one, and nothing speaks against it. */
function objection(
  { outcome }: IntentReport,
  found: readonly KnownIntent[],
): (ReportAnswer & { linked: false }) | undefined {
  const tasks = found.slice(0, SHOWN).map(factsOf)
  const unlinked = (reason: Unlinked, error: string) => ({ linked: false, reason, error, tasks }) as const
  const [intent] = found
  if (intent === undefined) return unlinked('unknown', 'no task of this name is open or remembered')
  if (found.length > 1)
    return unlinked('ambiguous', `${found.length} tasks have this name: say which by source, tenant or arm`)
  if (intent.outcome === undefined || intent.outcome === outcome) return undefined
  return unlinked(
    'contradicted',
    `it was reported before that the task ${intent.outcome}: the first report counts`,
  )
}
