import type { Call, CallResult, Outcome } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { ownText, Recent } from '../../units/recent.ts'
import type { DecisionEntry } from '../journal/entry.ts'

/** Most values that are watched for; the oldest are forgotten first. */
const MAX_CANARIES = 10_000

/** Most values of one result that are taken, and most of one call that are looked at. */
const MAX_LEAVES = 1_000

/** Shorter values could be anybody's. */
const SHORTEST = 6

/** Longest text that is looked at, in characters. */
const LONGEST = 4_096

/**
 * Values that only a fault can have brought into the world: the ones that it made and the server never said. When
 * one turns up in the arguments of a later call, the agent has believed it. The values are the mutation's own, so
 * that no marker tells the agent.
 */
export class Canaries {
  readonly #planted = new Recent<DecisionEntry>(MAX_CANARIES)
  /** Whether any value was ever planted: a plain field. */
  any = false

  /** Takes note of the values in `changed` that `original` does not have. */
  plant(entry: DecisionEntry, original: unknown, changed: unknown): void {
    const said = new Set(leaves(original))
    for (const leaf of leaves(changed)) if (!said.has(leaf)) this.#planted.set(ownText(leaf), entry)
    this.any = true
  }

  /** The decisions whose values a call's arguments hold. */
  in({ message }: Call): DecisionEntry[] {
    const found = leaves(paramsOf(message.value).arguments).map((leaf) => this.#planted.peek(leaf))
    return [...new Set(found)].filter((entry) => entry !== undefined)
  }
}

/** Distinctive strings and numbers within a value, as text; long texts also word by word. */
function leaves(value: unknown): string[] {
  const found: string[] = []
  const open: unknown[] = [value]
  // Not recursive: results are as deep as their authors like.
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
 * The changed results, with the culprits of each. Results are known by identity, so that no mark shows on the wire. The
 * inner parts of a result are known by identity too, because layers further out wrap results anew.
 */
export class Corruptions<Culprit> {
  readonly #by = new WeakMap<object, ReadonlySet<Culprit>>()
  /** Whether any result was ever changed: a plain field, so that calls pay nothing before. */
  any = false

  /** Notes that `culprit` made `changed`, out of `original` where there was one. */
  mark(culprit: Culprit, changed: CallResult, original?: CallResult): void {
    const culprits = new Set(original === undefined ? [] : this.#in(original))
    culprits.add(culprit)
    const kept = new Set(original === undefined ? [] : partsOf(original))
    for (const part of partsOf(changed)) if (!kept.has(part)) this.#by.set(part, culprits)
    this.any = true
  }

  /** Returns the culprits whose work an outcome still shows; undefined when there is none. */
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

/** The objects that stay the same when a result is wrapped anew. */
function partsOf({ value }: CallResult): object[] {
  const { result } = value
  const inner: unknown[] = typeof result === 'object' && result !== null ? Object.values(result) : []
  return [value, result, ...inner].filter((part) => typeof part === 'object' && part !== null)
}
