import type { Call, CallResult, Outcome } from '../../mesh/call.ts'
import { distinctiveIn } from '../../protocol/distinctive.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { ownText, Recent } from '../../units/recent.ts'
import type { DecisionEntry } from '../journal/entry.ts'

/** Maximum number of watched values; the oldest values are forgotten first. */
const MAX_CANARIES = 10_000

/** Shortest watched value, in characters: calls of all tasks are compared with these values. */
const SHORTEST = 6

/**
 * Watches values that a fault put into a reply and the server never sent. Such a value in the arguments of a later call
 * shows that the agent used the faulty reply. The values are the fault's own changes, so no additional marker warns the
 * agent.
 */
export class Canaries {
  readonly #planted = new Recent<DecisionEntry>(MAX_CANARIES)
  /** True once a value was planted. A plain field, so that the check costs calls nothing. */
  any = false

  /**
   * Records the values in `changed` that `original` lacks. Returns those that are more than words; undefined when
   * either is too large to compare as a whole.
   */
  plant(entry: DecisionEntry, original: unknown, changed: unknown): readonly string[] | undefined {
    const before = distinctiveIn(original)
    const after = distinctiveIn(changed)
    const said = new Set([...before.values, ...before.words])
    const isNew = (value: string) => !said.has(value)
    const planted = after.values.filter(isNew)
    for (const value of [...planted, ...after.words.filter(isNew)])
      if (value.length >= SHORTEST) this.#planted.set(ownText(value), entry)
    this.any = true
    return before.isWhole && after.isWhole ? planted : undefined
  }

  /** Returns the decisions whose values occur in a call's arguments. */
  in({ message }: Call): DecisionEntry[] {
    const { values, words } = distinctiveIn(paramsOf(message.value).arguments)
    const found = [...values, ...words].map((value) => this.#planted.peek(value))
    return [...new Set(found)].filter((entry) => entry !== undefined)
  }
}

/**
 * Remembers which faults (`Culprit`) changed which results. A result is recognised by object identity, so nothing is
 * added on the wire. The inner objects are remembered too, because outer layers wrap results in new objects.
 */
export class Corruptions<Culprit> {
  readonly #by = new WeakMap<object, ReadonlySet<Culprit>>()
  /** True once a result was changed. A plain field, so that the check costs calls nothing. */
  any = false

  /** Records that `culprit` made the result `changed`, from the result `original` if given. */
  mark(culprit: Culprit, changed: CallResult, original?: CallResult): void {
    const culprits = new Set(original === undefined ? [] : this.#in(original))
    culprits.add(culprit)
    const kept = new Set(original === undefined ? [] : partsOf(original))
    for (const part of partsOf(changed)) if (!kept.has(part)) this.#by.set(part, culprits)
    this.any = true
  }

  /** Returns the culprits whose changes an outcome still shows; undefined when there are none. */
  of(outcome: Outcome): ReadonlySet<Culprit> | undefined {
    if (outcome.kind !== 'answered') return undefined
    const { value } = outcome.result
    const { result } = value
    let found = this.#by.get(value)
    if (typeof result !== 'object' || result === null) return found
    found ??= this.#by.get(result)
    for (const key in result) {
      const part = (result as Record<string, unknown>)[key]
      if (found === undefined && typeof part === 'object' && part !== null) found = this.#by.get(part)
    }
    return found
  }

  #in(result: CallResult): ReadonlySet<Culprit> {
    return new Set(partsOf(result).flatMap((part) => [...(this.#by.get(part) ?? [])]))
  }
}

/** Returns the objects that stay the same when a result is wrapped anew. */
function partsOf({ value }: CallResult): object[] {
  const { result } = value
  const inner: unknown[] = typeof result === 'object' && result !== null ? Object.values(result) : []
  return [value, result, ...inner].filter((part) => typeof part === 'object' && part !== null)
}
