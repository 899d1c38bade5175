import type { Millis } from '../../mesh/clock.ts'

/** Something that waits. It is its own handle: the queue notes in it where it stands. */
export interface Queued {
  /** Its deadline on the monotonic clock; Infinity when it has none. */
  readonly at: Millis
  /** Decides between equal deadlines: the smaller came first. */
  readonly order: number
  /** The queue's own: -1 as long as it stands in none. */
  place: number
}

/** Whether `a` has to be served before `b`. */
export function isBefore(a: Queued, b: Queued): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

/** Earliest deadline first, as a binary heap: O(log n) to add, to take the first, and to take out any other. */
export class DeadlineQueue<Item extends Queued> {
  readonly #heap: Item[] = []

  get size(): number {
    return this.#heap.length
  }

  /** The earliest, which stays. */
  get first(): Item | undefined {
    return this.#heap[0]
  }

  /** The latest, which stays. O(n): no parent in a heap is later than its children, so only leaves are looked at. */
  get last(): Item | undefined {
    const heap = this.#heap
    let last: Item | undefined
    for (let i = heap.length >> 1; i < heap.length; i++) {
      if (last === undefined || isBefore(last, heap[i]!)) last = heap[i]
    }
    return last
  }

  /** Adds an item that stands in no queue. */
  push(item: Item): void {
    this.#heap.push(item)
    this.#rise(item, this.#heap.length - 1)
  }

  /** Takes out an item of this queue; false when it stands in none. */
  remove(item: Item): boolean {
    const { place } = item
    if (place === -1) return false
    item.place = -1
    const moved = this.#heap.pop()!
    if (moved === item) return true
    this.#rise(moved, place)
    this.#sink(moved, moved.place)
    return true
  }

  #rise(item: Item, from: number): void {
    const heap = this.#heap
    let place = from
    while (place > 0) {
      const above = heap[(place - 1) >> 1]!
      if (!isBefore(item, above)) break
      this.#put(above, place)
      place = (place - 1) >> 1
    }
    this.#put(item, place)
  }

  #sink(item: Item, from: number): void {
    const heap = this.#heap
    let place = from
    for (;;) {
      let below = 2 * place + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++
      if (!isBefore(heap[below]!, item)) break
      this.#put(heap[below]!, place)
      place = below
    }
    this.#put(item, place)
  }

  #put(item: Item, place: number): void {
    this.#heap[place] = item
    item.place = place
  }
}
