import type { ControlEntry, DecisionEntry, JournalEntry } from './entry.ts'

const CAPACITY = 10_000

/** A permanent destination of entries. */
export interface Sink {
  /** Takes an entry at once, and writes the entry when there is time. */
  append(entry: JournalEntry): void
  close(): Promise<void>
}

/** Keeps the latest decisions and events in memory, and passes all of them to the sink, if there is a sink. */
export class Journal {
  /**
   * True when the journal keeps decisions not to hit a call, by chance or by the schedule. In most plans, these are
   * nearly all decisions.
   */
  readonly keepsMisses: boolean
  readonly #ring: JournalEntry[] = []
  #sink: Sink | undefined
  #at = 0
  #seq = 0

  /** `keepsMisses`: default true. */
  constructor({ keepsMisses = true }: { readonly keepsMisses?: boolean } = {}) {
    this.keepsMisses = keepsMisses
  }

  /** Sets where entries are written from now on; undefined: nowhere. */
  set sink(sink: Sink | undefined) {
    this.#sink = sink
  }

  nextSeq(): number {
    return ++this.#seq
  }

  /** Adds a decision: written at once, unless its effect is still pending. */
  decision(entry: DecisionEntry): DecisionEntry {
    this.#keep(entry)
    if (entry.status !== 'pending') this.#sink?.append(entry)
    return entry
  }

  /** Writes a decision whose effect was pending and is now known. */
  finish(entry: DecisionEntry): void {
    this.#sink?.append({ ...entry })
  }

  append(entry: JournalEntry): void {
    // A decision in memory contains its fate, so entries of fates are not kept in memory.
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

  /**
   * Returns the injected faults for which `holds` is true, the latest first. Does not copy the entries, because every
   * call of an agent may need this search.
   */
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
