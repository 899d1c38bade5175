import type { Call, Outcome } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { CallIntent } from '../mesh/record.ts'
import { attribute } from './intents/attribution.ts'
import { wentWrong } from './intents/went-wrong.ts'
import { failedOf, keyOf, newIntent, type IntentOutcome, type KnownIntent } from './intents/intent.ts'
import { KnownIntents } from './intents/known.ts'
import { OpenIntents } from './intents/open.ts'
import { factsOf, objection, type IntentReport, type ReportAnswer } from './intents/report.ts'
import type { Metrics } from './metrics.ts'
import type { IntentSettings } from './schema.ts'

export interface IntentsParts {
  readonly clock: Clock
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
    record.intent ??= attribute(call)
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
  end({ record }: Call, outcome: Outcome): void {
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
    if (!repeated && !intent.isOpen) this.#link(intent, said.outcome)
    else if (intent.isOpen && intent.underWay === 0) this.#close(intent)
    return { linked: true, repeated, task: factsOf(intent) }
  }

  /** Counts all that are open as if they were over: for the end of the process. */
  closeAll(): void {
    this.#open.clear()
  }

  #find({ tenant, record }: Call, { id, source }: CallIntent): KnownIntent {
    const key = keyOf(source, tenant, id)
    const known = this.#open.get(key)
    if (known !== undefined) return known
    const earlier = this.#known.get(id, key, this.#parts.clock.now())
    const opened = newIntent({ id, source, tenant, arm: record.arm }, earlier)
    this.#known.add(opened)
    this.#open.add(opened)
    return opened
  }

  #close(intent: KnownIntent): void {
    this.#open.remove(intent)
    this.#count(intent)
  }

  /** It is open no more. */
  #count(intent: KnownIntent): void {
    const { intents, intentToolCalls } = this.#parts.metrics
    const { arm, source, failed, calls, outcome } = intent
    intent.isOpen = false
    this.#known.end(intent, this.#parts.clock.now())
    intents.inc({ outcome: failed > 0 ? 'failed' : 'ok', arm, source })
    // At 0 from the beginning: to Prometheus the first of a series that is new has not happened.
    intents.cell({ outcome: failed > 0 ? 'ok' : 'failed', arm, source })
    intentToolCalls.series({ arm, source }).observe(calls)
    if (outcome !== undefined) this.#link(intent, outcome)
  }

  /** How it ended, and whether calls of it failed: once for a task. */
  #link(intent: KnownIntent, outcome: IntentOutcome): void {
    const { arm, source } = intent
    const calls = failedOf(intent) > 0 ? 'failed' : 'ok'
    this.#parts.metrics.intentOutcomes.inc({ outcome, calls, arm, source })
  }
}
