import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { Book } from './book.ts'
import { HourlyLimit } from './hourly-limit.ts'
import { LatestTime } from './latest-time.ts'
import type { NewEntry, OpenedLedger } from './ledger.ts'
import { type Refusal, refusal } from './refusal.ts'

/** Limit for written refusals per name and hour. Further refusals only go to the log. */
const MAX_REFUSALS = 20

/** Interval of `clock` entries, in milliseconds. A `clock` entry records the latest time. */
const CLOCK_EVERY_MS: Millis = 10 * 60_000

/** Suggested pause after a failed write, in milliseconds. */
const DISK_MS: Millis = 30_000

/** An order or refusal, for the log. */
export interface OrderEvent {
  readonly order: string
  readonly by: string
  readonly result: string
  readonly detail: string
}

/** The book without write access. */
export type ReadBook = Omit<Book, 'add'>

/** Approval state backed by the ledger. An entry takes effect after it is on disk. */
export class DurableBook {
  readonly time: LatestTime
  readonly emit: (event: OrderEvent) => void
  readonly #book = new Book()
  readonly #ledger: OpenedLedger['ledger']
  readonly #clock: Clock
  readonly #refusals: HourlyLimit
  #cancel: Cancel | undefined

  constructor(clock: Clock, { entries, ledger }: OpenedLedger, emit: (event: OrderEvent) => void) {
    for (const entry of entries) this.#book.add(entry)
    this.#clock = clock
    this.#ledger = ledger
    this.emit = emit
    this.time = new LatestTime(clock, () => this.#book.latest)
    this.#refusals = new HourlyLimit(MAX_REFUSALS, () => this.time.now())
    this.#keepTime()
  }

  get state(): ReadBook {
    return this.#book
  }

  /** Whether the ledger is half full. The gateway then writes no refusals, and accepts no proposals. */
  get isNearlyFull(): boolean {
    return this.#ledger.isNearlyFull
  }

  /**
   * Adds runs of the journal that are missing in the ledger, because somebody removed or restored the ledger. Records
   * runs of earlier processes without an end as failed.
   */
  recover(earlier: readonly RunRecord[]): void {
    for (const { id: run, proof, requestedAt: at, state } of earlier) {
      const envelope = proof?.envelope
      if (envelope === undefined || this.#book.knowsRun(run)) continue
      const proposal = proof?.proposal ?? run
      this.#book.add({ kind: 'spent', at, by: '', proposal, run, envelope, nonce: undefined })
      this.#book.add({ kind: 'over', at, run, state, envelope, reached: [] })
    }
    for (const { run, envelope } of this.#book.openRuns)
      this.over({ kind: 'over', run, state: 'failed', envelope, reached: [] })
  }

  /** Writes an entry to disk, then updates the state. Resolves to a refusal if the entry cannot be written. */
  async write(entry: NewEntry): Promise<Refusal | undefined> {
    const dated = { ...entry, at: Math.floor(this.time.now()) }
    try {
      await this.#ledger.add(dated)
      this.#book.add(dated)
      return undefined
    } catch (error) {
      const why = (error as Error).message
      this.emit({ order: entry.kind, by: 'gateway', result: 'not written', detail: why })
      return refusal('busy', `the ledger of approvals cannot be written: ${why}`, {
        repeat: 'later',
        retryAfterMs: DISK_MS,
      })
    }
  }

  /**
   * Records the end of a run. The state changes before the write, so that no start is checked against the old state.
   * The state counts each end once.
   */
  over(entry: NewEntry & { readonly kind: 'over' }): void {
    this.#book.add({ ...entry, at: Math.floor(this.time.now()) })
    void this.write(entry)
  }

  /** Logs a refusal, and writes at most 20 refusals per name and hour to the ledger. Returns the refusal. */
  refuse(by: string, order: string, refused: Refusal): Refusal {
    const { code, message } = refused
    this.emit({ order, by, result: code, detail: message })
    if (!this.#refusals.isOver(by) && !this.isNearlyFull)
      void this.write({
        kind: 'refused',
        by: by.slice(0, 64),
        order,
        code,
        message: message.slice(0, 1_000),
      })
    return refused
  }

  async close(): Promise<void> {
    this.#cancel?.()
    await this.write({ kind: 'clock' })
    await this.#ledger.close()
  }

  #keepTime(): void {
    this.#cancel = this.#clock.after(CLOCK_EVERY_MS, () => {
      if (this.#book.envelopes.length > 0 && this.time.clockBack() === undefined)
        void this.write({ kind: 'clock' })
      this.#keepTime()
    })
  }
}
