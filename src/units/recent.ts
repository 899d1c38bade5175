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
