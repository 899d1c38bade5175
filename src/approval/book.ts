import { type Envelope, envelopeSchema } from './envelope.ts'
import type { LedgerEntry } from './ledger.ts'

/** How long a completed run counts for the ladder, in milliseconds. */
const LADDER_MS = 14 * 86_400_000

const DAY_MS = 86_400_000

/** An installed envelope, and its use. */
export interface EnvelopeState {
  readonly envelope: Envelope
  readonly by: string
  /** Times of the runs begun, in milliseconds since the epoch. */
  readonly spentAt: readonly number[]
  /** Runs that ended without completion since the last lift. */
  readonly aborts: number
  readonly isWithdrawn: boolean
}

export interface Remaining {
  readonly runs: number
  readonly today: number
  readonly aborts: number
}

interface Use {
  envelope: Envelope
  by: string
  spentAt: number[]
  /** Runs begun whose end is not known. */
  open: Set<string>
  aborts: number
  isWithdrawn: boolean
}

/** The state of envelopes, approvals and ladders, computed from the entries of the ledger. No I/O. */
export class Book {
  readonly #uses = new Map<string, Use>()
  readonly #nonces = new Set<string>()
  /** Runs by the proposal that began the run. */
  readonly #runs = new Map<string, string>()
  readonly #known = new Set<string>()
  readonly #reached: {
    readonly at: number
    readonly identity: string
    readonly type: string
    readonly share: number
  }[] = []
  #latest = 0

  /** The latest time of an entry, in milliseconds since the epoch; 0 without entries. */
  get latest(): number {
    return this.#latest
  }

  add(entry: LedgerEntry): void {
    this.#latest = Math.max(this.#latest, entry.at)
    switch (entry.kind) {
      case 'envelope': {
        const read = envelopeSchema.safeParse(entry.signed.envelope)
        // An id stays taken: the same envelope installed again keeps its use.
        if (!read.success || this.#uses.has(read.data.id)) return
        const fresh = { spentAt: [], open: new Set<string>(), aborts: 0, isWithdrawn: false }
        this.#uses.set(read.data.id, { envelope: read.data, by: entry.by, ...fresh })
        return
      }
      case 'withdrawn': {
        const use = this.#uses.get(entry.envelope)
        if (use !== undefined) use.isWithdrawn = true
        return
      }
      case 'lifted': {
        const use = this.#uses.get(entry.signed.lift.envelope)
        if (use !== undefined) use.aborts = 0
        this.#nonces.add(entry.signed.lift.nonce)
        return
      }
      case 'spent': {
        this.#runs.set(entry.proposal, entry.run)
        this.#known.add(entry.run)
        if (entry.nonce !== undefined) this.#nonces.add(entry.nonce)
        const use = entry.envelope === undefined ? undefined : this.#uses.get(entry.envelope)
        use?.spentAt.push(entry.at)
        use?.open.add(entry.run)
        return
      }
      case 'over': {
        const use = entry.envelope === undefined ? undefined : this.#uses.get(entry.envelope)
        if (use?.open.delete(entry.run) === true && entry.state !== 'completed') use.aborts++
        if (entry.state === 'completed')
          this.#reached.push(...entry.reached.map((one) => ({ at: entry.at, ...one })))
        return
      }
      case 'damaged':
        for (const use of this.#uses.values()) use.aborts = Math.max(use.aborts, use.envelope.budget.aborts)
        return
      case 'proposed':
      case 'approved':
      case 'refused':
      case 'clock':
        return
    }
  }

  /** Counts runs of an earlier process that never ended as aborted. Call once, after the entries of the ledger. */
  closeOpenRuns(): void {
    for (const use of this.#uses.values()) {
      use.aborts += use.open.size
      use.open.clear()
    }
  }

  envelope(id: string): EnvelopeState | undefined {
    return this.#uses.get(id)
  }

  get envelopes(): readonly EnvelopeState[] {
    return [...this.#uses.values()]
  }

  /** Whether a run is in the ledger. */
  knowsRun(id: string): boolean {
    return this.#known.has(id)
  }

  isUsed(nonce: string): boolean {
    return this.#nonces.has(nonce)
  }

  /** Returns the run that a proposal began; undefined before. */
  runOf(proposal: string): string | undefined {
    return this.#runs.get(proposal)
  }

  /** Returns the budget left at a time. A day is the last 24 hours. */
  remaining({ envelope: { budget }, spentAt, aborts }: EnvelopeState, now: number): Remaining {
    return {
      runs: Math.max(0, budget.runs - spentAt.length),
      today: Math.max(0, budget.perDay - spentAt.filter((at) => at > now - DAY_MS).length),
      aborts: Math.max(0, budget.aborts - aborts),
    }
  }

  /** Returns the highest share of a completed run within 14 days; 0 for none. */
  completedShare(identity: string, type: string, now: number): number {
    const found = this.#reached.filter(
      (one) => one.identity === identity && one.type === type && one.at > now - LADDER_MS,
    )
    return Math.max(0, ...found.map(({ share }) => share))
  }
}
