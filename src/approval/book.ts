import { type Envelope, envelopeSchema } from './envelope.ts'
import type { LedgerEntry, Reached } from './ledger.ts'

/** A completed run counts for the ladder for this time, in milliseconds: 14 days. */
const LADDER_MS = 14 * 86_400_000

/** A day, in milliseconds. */
const DAY_MS = 86_400_000

/** An installed envelope with the usage of the envelope. */
export interface EnvelopeState {
  readonly envelope: Envelope
  readonly by: string
  /** Times of the runs begun, in milliseconds since the epoch. */
  readonly spentAt: readonly number[]
  /** Number of runs that ended without completion since a person last lifted a suspension. */
  readonly aborts: number
  readonly isWithdrawn: boolean
}

export interface Remaining {
  readonly runs: number
  readonly today: number
  readonly aborts: number
}

/** Usage of an envelope. The envelope may be unknown to the ledger. */
interface Use {
  readonly spentAt: number[]
  aborts: number
  isWithdrawn: boolean
}

/** The state of envelopes, approvals and ladders, computed from the entries of the ledger. No I/O. */
export class Book {
  readonly #installed = new Map<string, { readonly envelope: Envelope; readonly by: string }>()
  /**
   * Usage by envelope id. After a loss of the ledger, runs in the journal may belong to an envelope that a person
   * installs later.
   */
  readonly #uses = new Map<string, Use>()
  /** Nonces of the used approvals and lifts. */
  readonly #nonces = new Set<string>()
  /** Run ids by proposal id. */
  readonly #runs = new Map<string, string>()
  /** Ids of all runs in the ledger. */
  readonly #known = new Set<string>()
  /** Envelope ids by run id, for the runs without a recorded end. Undefined: a person approved the run. */
  readonly #open = new Map<string, string | undefined>()
  /** Shares that completed runs reached. */
  readonly #reached: (Reached & { readonly at: number })[] = []
  #latest = 0
  /**
   * Time of the last damage to the ledger. An envelope with an earlier `notBefore` is suspended, because the usage of
   * the envelope is unknown.
   */
  #damagedAt = -Infinity

  /** The latest time of an entry, in milliseconds since the epoch; 0 without entries. */
  get latest(): number {
    return this.#latest
  }

  /** Adds an entry. A second end of the same run changes nothing. */
  add(entry: LedgerEntry): void {
    this.#latest = Math.max(this.#latest, entry.at)
    switch (entry.kind) {
      case 'envelope': {
        const read = envelopeSchema.safeParse(entry.signed.envelope)
        // An id is installed once. A second installation changes nothing, so the usage stays.
        if (!read.success || this.#installed.has(read.data.id)) return
        const envelope = read.data
        this.#installed.set(envelope.id, { envelope, by: entry.by })
        if (Date.parse(envelope.notBefore) <= this.#damagedAt) suspend(this.#useOf(envelope.id), envelope)
        return
      }
      case 'withdrawn':
        this.#useOf(entry.envelope).isWithdrawn = true
        return
      case 'lifted':
        this.#useOf(entry.signed.lift.envelope).aborts = 0
        this.#nonces.add(entry.signed.lift.nonce)
        return
      case 'spent': {
        this.#runs.set(entry.proposal, entry.run)
        this.#known.add(entry.run)
        if (entry.nonce !== undefined) this.#nonces.add(entry.nonce)
        this.#open.set(entry.run, entry.envelope)
        if (entry.envelope !== undefined) this.#useOf(entry.envelope).spentAt.push(entry.at)
        return
      }
      case 'over': {
        const envelope = this.#open.get(entry.run)
        if (!this.#open.delete(entry.run)) return
        if (entry.state === 'completed')
          this.#reached.push(...entry.reached.map((one) => ({ at: entry.at, ...one })))
        else if (envelope !== undefined) this.#useOf(envelope).aborts++
        return
      }
      case 'damaged':
        this.#damagedAt = entry.at
        for (const { envelope } of this.#installed.values()) suspend(this.#useOf(envelope.id), envelope)
        return
      case 'proposed':
      case 'approved':
      case 'refused':
      case 'clock':
        return
    }
  }

  #useOf(id: string): Use {
    let use = this.#uses.get(id)
    if (use === undefined) this.#uses.set(id, (use = { spentAt: [], aborts: 0, isWithdrawn: false }))
    return use
  }

  /** Returns the runs without a recorded end, if an envelope covers the run. */
  get openRuns(): readonly { readonly run: string; readonly envelope: string }[] {
    return [...this.#open].flatMap(([run, envelope]) => (envelope === undefined ? [] : [{ run, envelope }]))
  }

  envelope(id: string): EnvelopeState | undefined {
    const installed = this.#installed.get(id)
    return installed && { ...installed, ...this.#useOf(id) }
  }

  get envelopes(): readonly EnvelopeState[] {
    return [...this.#installed.keys()].map((id) => this.envelope(id)!)
  }

  /** Whether a run is in the ledger. */
  knowsRun(id: string): boolean {
    return this.#known.has(id)
  }

  isUsed(nonce: string): boolean {
    return this.#nonces.has(nonce)
  }

  /** Returns the run of a proposal. Undefined: the proposal has not begun a run. */
  runOf(proposal: string): string | undefined {
    return this.#runs.get(proposal)
  }

  /** Returns the remaining budget at `now`. A day is the last 24 hours. */
  remaining({ envelope: { budget }, spentAt, aborts }: EnvelopeState, now: number): Remaining {
    return {
      runs: Math.max(0, budget.runs - spentAt.length),
      today: Math.max(0, budget.perDay - spentAt.filter((at) => at > now - DAY_MS).length),
      aborts: Math.max(0, budget.aborts - aborts),
    }
  }

  /** Returns the highest share of a completed run with an equal fault in the last 14 days; 0 without a run. */
  completedShare(identity: string, fault: string, now: number): number {
    const found = this.#reached.filter(
      (one) => one.identity === identity && one.fault === fault && one.at > now - LADDER_MS,
    )
    return Math.max(0, ...found.map(({ share }) => share))
  }
}

/** Suspends an envelope: no aborted run is left in the budget. */
function suspend(use: Use, { budget }: Envelope): void {
  use.aborts = Math.max(use.aborts, budget.aborts)
}
