import { LRUCache } from 'lru-cache'

/**
 * A map that holds the `most` latest: past that, what has not been set, or read by `get`, for the longest goes. `peek`
 * reads without making an entry newer. Bounded by `maxSize`, because `max` takes room for all of them at once.
 */
export class Recent<Value extends object | number | true> extends LRUCache<string, Value> {
  constructor(most: number) {
    super({ maxSize: most, sizeCalculation: () => 1 })
  }

  /** Forgets the oldest for as long as `isOver` holds of them. */
  forgetWhile(isOver: (value: Value) => boolean): void {
    for (;;) {
      const { value: oldest } = this.rkeys().next()
      const value = oldest === undefined ? undefined : this.peek(oldest)
      if (oldest === undefined || value === undefined || !isOver(value)) return
      this.delete(oldest)
    }
  }
}

/**
 * The beginning of a text, at most so many UTF-16 code units of it. The rest of the text can be collected: a part that
 * `slice` makes is a view of the whole text in V8, and keeps all of it for as long as the part is kept.
 */
export function clip(text: string, longest: number): string {
  return text.length > longest ? ownText(text.slice(0, longest)) : text
}

/** A part of a text, as a text of its own. */
export function ownText(part: string): string {
  // By way of bytes; of these, because a half of a pair of surrogates has none in UTF-8.
  return Buffer.from(part, 'utf16le').toString('utf16le')
}

/** The beginning of a text, at most so many UTF-16 code units of it, without a word that is cut: half of a secret is not known for one. */
export function clipWords(text: string, longest: number): string {
  if (text.length <= longest) return text
  return ownText(text.slice(0, Math.max(0, text.slice(0, longest).search(/\s\S*$/))))
}
