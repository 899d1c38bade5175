import { LRUCache } from 'lru-cache'

/**
 * An LRU map of `most` entries. `get` and `set` make an entry newer, `peek` does not. Bounded by `maxSize`, because
 * `max` allocates room for all entries at once.
 */
export class Recent<Value extends object | number | true> extends LRUCache<string, Value> {
  constructor(most: number) {
    super({ maxSize: most, sizeCalculation: () => 1 })
  }

  /** Deletes the oldest entries while `isOver` holds. */
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
 * Returns at most `longest` UTF-16 code units of a text's beginning, as a copy. In V8 a `slice` is a view of the whole
 * text, and would keep the whole text in memory.
 */
export function clip(text: string, longest: number): string {
  return text.length > longest ? ownText(text.slice(0, longest)) : text
}

/** Copies a part of a text, so the rest of the text can be collected. */
export function ownText(part: string): string {
  // Copies by way of bytes. Not in UTF-8, because UTF-8 cannot encode half of a surrogate pair.
  return Buffer.from(part, 'utf16le').toString('utf16le')
}

/** Like `clip`, without a cut word at the end, because half of a secret would not be recognized as a secret. */
export function clipWords(text: string, longest: number): string {
  if (text.length <= longest) return text
  return ownText(text.slice(0, Math.max(0, text.slice(0, longest).search(/\s\S*$/))))
}
