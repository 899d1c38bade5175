import type { CallResult, Outcome } from '../../mesh/call.ts'

/**
 * Which results were changed, and by whom. By identity, so that nothing of it shows on the wire; by that of the
 * inner parts too, because layers further out wrap results anew.
 */
export class Corruptions<Culprit> {
  readonly #by = new WeakMap<object, ReadonlySet<Culprit>>()
  #any = false

  /** Notes that `culprit` made `changed`, out of `original` where there was one. */
  mark(culprit: Culprit, changed: CallResult, original?: CallResult): void {
    const culprits = new Set(original === undefined ? [] : this.#in(original))
    culprits.add(culprit)
    const kept = new Set(original === undefined ? [] : partsOf(original))
    for (const part of partsOf(changed)) if (!kept.has(part)) this.#by.set(part, culprits)
    this.#any = true
  }

  /** Whose work an outcome still shows; undefined for nobody's. */
  of(outcome: Outcome): ReadonlySet<Culprit> | undefined {
    if (!this.#any || outcome.kind !== 'answered') return undefined
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
