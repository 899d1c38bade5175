import type { Call, Outcome, Verdict } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Scope } from '../../mesh/policy.ts'
import { isObject, parseJson, resultText } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { isFinal, isTask } from '../state/final-result.ts'
import { argumentsOf, digestOf, identityOf } from '../state/sameness.ts'

/** A good answer, as the JSON text of its result. */
interface Good {
  readonly result: string
  readonly bytes: number
  readonly verdict: Verdict
  readonly at: Millis
}

export interface Limits {
  /** In milliseconds. */
  readonly maxAge: Millis
  readonly most: number
  /** In bytes. */
  readonly maxSize: number
}

/** The last good answers of one tool; the oldest go first. */
export class LastKnownGood {
  readonly #answers = new Map<string, Good>()
  #bytes = 0

  /** The answer, however old. */
  get(key: string): Good | undefined {
    return this.#answers.get(key)
  }

  put(key: string, good: Good, { most, maxSize }: Limits): void {
    this.#drop(key)
    if (good.bytes > maxSize) return
    this.#answers.set(key, good)
    this.#bytes += good.bytes
    while (this.#answers.size > most || this.#bytes > maxSize) {
      const oldest = this.#answers.keys().next()
      if (oldest.done !== true) this.#drop(oldest.value)
    }
  }

  /** For the admin API. */
  snapshot() {
    return { answers: this.#answers.size, bytes: this.#bytes }
  }

  #drop(key: string): void {
    this.#bytes -= this.#answers.get(key)?.bytes ?? 0
    this.#answers.delete(key)
  }
}

/** Keeps the good answers of tools that only read, and finds them again for the same arguments and identity. */
export function staleAnswers(
  answers: LastKnownGood,
  limits: Limits,
  clock: Clock,
  scope: Scope,
  notice: boolean,
) {
  return {
    keep(call: Call, outcome: Outcome): void {
      if (!isGood(call, outcome) || scope.effectOf(call) !== 'read_only') return
      const { result, verdict } = outcome
      const span = locate(result.text, ['result'])
      if (span === undefined) return
      const text = result.text.slice(span.start, span.end)
      const bytes = Buffer.byteLength(text)
      answers.put(keyOf(call), { result: text, bytes, verdict, at: clock.now() }, limits)
    },

    find(call: Call, failure: string): Outcome | undefined {
      const good = answers.get(keyOf(call))
      if (good === undefined || scope.effectOf(call) !== 'read_only') return undefined
      const ageMs = clock.now() - good.at
      if (ageMs > limits.maxAge) return undefined
      const text = resultText(call.id, good.result)
      const value = parseJson(text) as Call['message']['value']
      const reason = `this answer is ${Math.round(ageMs / 1_000)} s old, because ${failure}`
      return {
        kind: 'answered',
        result: { text, value, status: 200 },
        verdict: good.verdict,
        partial: { source: 'stale', reason, notice },
      }
    },
  }
}

/** The eras get results of other shapes. */
function keyOf(call: Call): string {
  return digestOf(
    call.tool ?? '',
    argumentsOf(call),
    identityOf(call),
    String(call.caller.takesInputRequired),
  )
}

function isGood(call: Call, outcome: Outcome): outcome is Outcome & { kind: 'answered' } {
  if (outcome.kind !== 'answered' || outcome.partial !== undefined) return false
  if (outcome.verdict !== 'correct' && outcome.verdict !== 'unchecked') return false
  return isObject(outcome.result.value.result) && !isTask(call) && isFinal(outcome.result)
}
