import type { Call, CallResult, Outcome } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { ownText, Recent } from '../../units/recent.ts'
import type { DecisionEntry } from '../journal/entry.ts'

/** Maximum number of watched values; the oldest values are forgotten first. */
const MAX_CANARIES = 10_000

/** Maximum number of values taken from a result, and of values examined in a call. */
const MAX_LEAVES = 1_000

/** Length of the shortest watched values, in characters: shorter values also occur by chance. */
const SHORTEST = 6

/** Longest examined text, in characters. */
const LONGEST = 4_096

/**
 * Watches values that a fault put into a reply and the server never sent. Such a value in the arguments of a later call
 * shows that the agent used the faulty reply. The values are the fault's own changes, so no additional marker warns the
 * agent.
 */
export class Canaries {
  readonly #planted = new Recent<DecisionEntry>(MAX_CANARIES)
  /** True once a value was planted. A plain field, so that the check costs calls nothing. */
  any = false

  /** Records the values in `changed` that `original` lacks. */
  plant(entry: DecisionEntry, original: unknown, changed: unknown): void {
    const said = new Set(leaves(original))
    for (const leaf of leaves(changed)) if (!said.has(leaf)) this.#planted.set(ownText(leaf), entry)
    this.any = true
  }

  /** Returns the decisions whose values occur in a call's arguments. */
  in({ message }: Call): DecisionEntry[] {
    const found = leaves(paramsOf(message.value).arguments).map((leaf) => this.#planted.peek(leaf))
    return [...new Set(found)].filter((entry) => entry !== undefined)
  }
}

/** Returns distinctive strings and numbers within a value, as text; long texts also word by word. */
function leaves(value: unknown): string[] {
  const found: string[] = []
  const open: unknown[] = [value]
  // Uses a stack instead of recursion, because results may nest to any depth.
  while (open.length > 0 && found.length < MAX_LEAVES) {
    const next = open.pop()
    if (typeof next === 'object' && next !== null) {
      for (const held of Object.values(next)) open.push(held)
    } else if (typeof next === 'string' || typeof next === 'number') {
      const text = String(next)
      if (text.length >= SHORTEST && text.length <= LONGEST) found.push(text, ...words(text))
    }
  }
  return found
}

const words = (text: string): string[] =>
  text.split(/[^\p{L}\p{N}_.+-]+/u).filter((word) => word.length >= SHORTEST && word !== text)

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
