import type { Call, Outcome } from '../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import type { CallIntent } from '../mesh/record.ts'
import { attribute } from './intents-attribution.ts'
import type { Metrics } from './metrics.ts'
import { wentWrong } from './intents-failure.ts'

export interface IntentsParts {
  readonly clock: Clock
  readonly metrics: Pick<
    Metrics,
    'intents' | 'intentToolCalls' | 'intentsUnattributed' | 'intentsEvicted' | 'intentsOpen'
  >
}

interface OpenIntent extends CallIntent {
  readonly key: string
  /** Where it is counted: that of its first call. */
  readonly arm: string
  calls: number
  /** Calls that are not over: as long as there are any, the task is not. */
  underWay: number
  failed: boolean
  lastAt: Millis
  isOpen: boolean
}

/**
 * The tasks of agents that are not over. One is over when none of its calls is under way and none has ended for a
 * while; then it is counted, with the number of its tool calls (TCAF) and whether any of them failed (blast radius).
 */
export class Intents {
  readonly #parts: IntentsParts
  /** The one that was quiet for the longest time comes first. */
  readonly #open = new Map<string, OpenIntent>()
  #idleMs: Millis = 30_000
  #max = 10_000
  #cancel: Cancel | undefined

  constructor(parts: IntentsParts) {
    this.#parts = parts
  }

  /** How many are open. */
  get size(): number {
    return this.#open.size
  }

  /** Settings for all that is closed from here on. */
  tune({ idle, max }: { readonly idle: Millis; readonly max: number }): void {
    this.#idleMs = idle
    this.#max = max
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
    const intent = record.intent as OpenIntent | undefined
    if (intent === undefined) return
    intent.failed ||= wentWrong(outcome)
    if (--intent.underWay === 0 && intent.isOpen) this.#touch(intent)
  }

  /** Counts all that are open as if they were over: for the end of the process. */
  closeAll(): void {
    this.#cancel?.()
    this.#cancel = undefined
    for (const intent of this.#open.values()) this.#close(intent)
  }

  #find({ tenant, record }: Call, { id, source }: CallIntent): OpenIntent {
    const key = `${source} ${tenant}\n${id}`
    const known = this.#open.get(key)
    if (known !== undefined) return known
    if (this.#open.size >= this.#max) this.#evict()
    const { arm } = record
    const lastAt = this.#parts.clock.now()
    const opened = { id, source, key, arm, calls: 0, underWay: 0, failed: false, lastAt, isOpen: true }
    this.#touch(opened)
    return opened
  }

  /** It goes to the end of the line. While calls of it are under way, its place does not matter. */
  #touch(intent: OpenIntent): void {
    intent.lastAt = this.#parts.clock.now()
    this.#open.delete(intent.key)
    this.#open.set(intent.key, intent)
    this.#cancel ??= this.#parts.clock.after(this.#idleMs, this.#sweep)
  }

  readonly #sweep = (): void => {
    const now = this.#parts.clock.now()
    this.#cancel = undefined
    for (const intent of this.#open.values()) {
      const leftMs = Math.ceil(intent.lastAt + this.#idleMs - now)
      if (leftMs > 0) {
        this.#cancel = this.#parts.clock.after(leftMs, this.#sweep)
        return
      }
      if (intent.underWay > 0) this.#touch(intent)
      else this.#close(intent)
    }
  }

  /** Makes room. One with calls under way is only taken if it is its turn: it was quiet before they began. */
  #evict(): void {
    for (const oldest of this.#open.values()) {
      this.#parts.metrics.intentsEvicted.inc()
      this.#close(oldest)
      return
    }
  }

  #close(intent: OpenIntent): void {
    const { intents, intentToolCalls } = this.#parts.metrics
    const { key, arm, source, failed, calls } = intent
    intent.isOpen = false
    this.#open.delete(key)
    intents.inc({ outcome: failed ? 'failed' : 'ok', arm, source })
    intentToolCalls.series({ arm, source }).observe(calls)
  }
}
