import type { ControlEntry, DecisionEntry, JournalEntry } from './entry.ts'

/** Most entries that are kept in memory. */
const CAPACITY = 10_000

/** Where entries go for good. */
export interface Sink {
  /** Takes an entry at once, and writes it down when there is time. */
  append(entry: JournalEntry): void
  close(): Promise<void>
}

/** Everything that was decided and done: the latest in memory, all of it in a file where there is one. */
export class Journal {
  /** Whether decisions are kept that spared a call by chance, or by the schedule: nearly all of them, in most plans. */
  readonly keepsMisses: boolean
  readonly #ring: JournalEntry[] = []
  #sink: Sink | undefined
  #at = 0
  #seq = 0

  /** `keepsMisses` is true unless given. */
  constructor({ keepsMisses = true }: { readonly keepsMisses?: boolean } = {}) {
    this.keepsMisses = keepsMisses
  }

  /** Where entries are written from now on; undefined: nowhere. */
  set sink(sink: Sink | undefined) {
    this.#sink = sink
  }

  nextSeq(): number {
    return ++this.#seq
  }

  /** A decision: written at once, unless it has yet to show what becomes of it. */
  decision(entry: DecisionEntry): DecisionEntry {
    this.#keep(entry)
    if (entry.status !== 'pending') this.#sink?.append(entry)
    return entry
  }

  /** A decision that was pending is complete. */
  finish(entry: DecisionEntry): void {
    this.#sink?.append({ ...entry })
  }

  append(entry: JournalEntry): void {
    // The fate of a decision stands in the decision too, as long as the decision is in memory.
    if (entry.kind !== 'fate') this.#keep(entry)
    this.#sink?.append(entry)
  }

  control(at: number, said: Omit<ControlEntry, 'kind' | 'seq' | 'at'>): void {
    this.append({ kind: 'control', seq: this.nextSeq(), at, ...said })
  }

  /** Returns the entries in memory, the oldest first. */
  entries(): readonly JournalEntry[] {
    return [...this.#ring.slice(this.#at), ...this.#ring.slice(0, this.#at)]
  }

  decisions(): readonly DecisionEntry[] {
    return this.entries().filter((entry) => entry.kind === 'decision')
  }

  /** Faults that were injected and of which this holds, the latest first. Copies nothing: agents may ask with every call. */
  injected(holds: (entry: DecisionEntry) => boolean): DecisionEntry[] {
    const found: DecisionEntry[] = []
    const { length } = this.#ring
    for (let back = 1; back <= length; back++) {
      const entry = this.#ring[(this.#at + length - back) % length]
      if (entry?.kind === 'decision' && entry.decision === 'injected' && holds(entry)) found.push(entry)
    }
    return found
  }

  #keep(entry: JournalEntry): void {
    if (this.#ring.length < CAPACITY) {
      this.#ring.push(entry)
      return
    }
    this.#ring[this.#at] = entry
    this.#at = (this.#at + 1) % CAPACITY
  }
}
