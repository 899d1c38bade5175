import type { Survey } from '../experiments/guarded/guarded.ts'
import type { Spec, SpecFault } from '../experiments/guarded/spec.ts'
import { formatDuration } from '../units/duration.ts'
import { numbered } from '../units/numbered.ts'
import type { SignedLift } from './approval.ts'
import type { EnvelopeState, Remaining } from './book.ts'
import { digestOf } from './digest.ts'
import type { DurableBook } from './durable-book.ts'
import {
  type Envelope,
  envelopeSchema,
  type Exceeded,
  type HitTool,
  outsideOf,
  type Proposed,
  type SignedEnvelope,
  unsoundIn,
} from './envelope.ts'
import { HOUR_MS } from './hourly-limit.ts'
import { type Refusal, refusal } from './refusal.ts'
import type { Trust } from './trust.ts'

export interface EnvelopesParts {
  readonly gateway: string
  readonly environment: string
  /** Completes a command for a person, so that the command finds this gateway. */
  readonly command: (words: string) => string
  readonly trust: Trust
  readonly isFreeText: Proposed['isFreeText']
  readonly isOfOtherKind: Proposed['isOfOtherKind']
  readonly inUnits: Proposed['inUnits']
  /** Returns the number of distinct tenants in recent calls to the targets. Undefined: no recent calls. */
  readonly tenantsOf: (hit: readonly HitTool[]) => number | undefined
}

/** A run that needs an envelope. */
export interface Wanted {
  readonly by: string
  readonly spec: Spec
  readonly firstStage: number
  readonly hit: readonly HitTool[]
  readonly targets: Survey['targets']
}

/** The result of the search for an envelope. */
export interface Nearest {
  /** A usable envelope that covers the run. */
  readonly state?: EnvelopeState
  /** The exceeded limits of the envelope with the fewest exceeded limits. */
  readonly exceeded: readonly Exceeded[]
  /** The refusal of an unusable envelope: no budget, outside of the lifetime, or for another gateway. */
  readonly refused?: Refusal
}

/** An envelope with its use; `isEarly`: not yet in force. */
export interface ListedEnvelope extends EnvelopeState {
  readonly remaining: Remaining
  readonly isExpired: boolean
  readonly isEarly: boolean
}

/** Returns the digest of a fault without `name` and `match`. */
export const faultDigest = ({ name: _, match: __, ...fault }: SpecFault): string => digestOf(fault)

/** The signed envelopes of the gateway. */
export class Envelopes {
  readonly #parts: EnvelopesParts
  readonly #book: DurableBook

  constructor(parts: EnvelopesParts, book: DurableBook) {
    this.#parts = parts
    this.#book = book
  }

  get list(): readonly ListedEnvelope[] {
    const now = this.#book.time.now()
    const { envelopes } = this.#book.state
    return envelopes.map((state) => ({
      ...state,
      remaining: this.#book.state.remaining(state, now),
      isExpired: now >= Date.parse(state.envelope.expiresAt),
      isEarly: now < Date.parse(state.envelope.notBefore),
    }))
  }

  /** Returns an installed envelope. The envelope may be expired or withdrawn. */
  get(id: string): EnvelopeState | undefined {
    return this.#book.state.envelope(id)
  }

  /** Installs an envelope that a trusted person signed. */
  async install(
    signed: SignedEnvelope,
  ): Promise<{ readonly ok: true; readonly envelope: Envelope } | Refusal> {
    const found = this.#readSigned(signed)
    if (!found.ok) return this.#book.refuse(signed.signature.by, 'envelope', found)
    const { envelope, by } = found
    return (await this.#book.write({ kind: 'envelope', signed, by })) ?? { ok: true, envelope }
  }

  #readSigned({
    envelope: given,
    signature,
  }: SignedEnvelope): { readonly ok: true; readonly envelope: Envelope; readonly by: string } | Refusal {
    const read = envelopeSchema.safeParse(given)
    if (!read.success) {
      const { path = [], message = '' } = read.error.issues[0] ?? {}
      return refusal('invalid', `the envelope cannot be used: ${path.join('.')}: ${message}`)
    }
    const envelope = read.data
    const verified = this.#parts.trust.verify('envelope', given, signature)
    if (!verified.ok) return refusal('not_allowed', verified.why)
    const problems = unsoundIn(envelope)
    if (problems.length > 0) return refusal('invalid', problems.join('; '))
    const misplaced = this.#misplaced(envelope)
    if (misplaced !== undefined) return misplaced
    if (this.get(envelope.id) !== undefined)
      return refusal('invalid', `there is an envelope ${envelope.id} already: sign one with another id`)
    return { ok: true, envelope, by: verified.by }
  }

  async withdraw(id: string, by: string): Promise<{ readonly ok: true } | Refusal> {
    if (this.get(id) === undefined) return refusal('not_found', `there is no envelope ${id}`)
    return (await this.#book.write({ kind: 'withdrawn', envelope: id, by })) ?? { ok: true }
  }

  /** Lifts a suspension, by a person's signed order. */
  async lift(signed: SignedLift): Promise<{ readonly ok: true } | Refusal> {
    const { lift, signature } = signed
    const refuse = (refused: Refusal) => this.#book.refuse(signature.by, 'lift', refused)
    const verified = this.#parts.trust.verify('lift', lift, signature)
    if (!verified.ok) return refuse(refusal('not_allowed', verified.why))
    if (lift.gateway !== this.#parts.gateway)
      return refuse(refusal('wrong_gateway', 'the order was signed for another gateway'))
    if (this.#book.state.isUsed(lift.nonce))
      return refuse(refusal('approval_used', 'the order was used before'))
    if (this.get(lift.envelope) === undefined)
      return refusal('not_found', `there is no envelope ${lift.envelope}`)
    return (await this.#book.write({ kind: 'lifted', signed, by: verified.by })) ?? { ok: true }
  }

  /** Returns a usable envelope that covers the run. Without this envelope, returns the exceeded limits or a refusal. */
  nearest(run: Wanted): Nearest {
    const now = this.#book.time.now()
    let nearest: readonly Exceeded[] | undefined
    let refused: Refusal | undefined
    const proposed = this.#proposed(run, now)
    for (const state of this.#book.state.envelopes) {
      const { envelope, isWithdrawn } = state
      if (isWithdrawn) continue
      const misplaced = this.#misplaced(envelope) ?? untimely(envelope, now)
      if (misplaced !== undefined) {
        refused ??= misplaced
        continue
      }
      const exceeded = outsideOf(envelope, proposed)
      if (exceeded.length > 0) {
        if (nearest === undefined || distanceOf(exceeded) < distanceOf(nearest)) nearest = exceeded
        continue
      }
      const spent = this.#spent(state, now)
      if (spent === undefined) return { state, exceeded: [] }
      refused = spent
    }
    // If an envelope covers the run but has no budget, the refusal helps more than the exceeded limits.
    const isCovered = refused?.code === 'budget_spent' || refused?.code === 'suspended'
    if (nearest !== undefined && !isCovered) return { exceeded: nearest }
    return { exceeded: [], ...(refused !== undefined && { refused }) }
  }

  #proposed({ targets, ...run }: Wanted, now: number): Proposed {
    const { environment, isFreeText, isOfOtherKind, inUnits, tenantsOf } = this.#parts
    return {
      ...run,
      environment,
      now,
      covered: targets.servers.flatMap(({ name: server, tools }) => tools.map((tool) => ({ server, tool }))),
      isFreeText,
      isOfOtherKind,
      inUnits,
      tenants: tenantsOf(run.hit),
      completedShare: (identity, fault) => this.#book.state.completedShare(identity, faultDigest(fault), now),
    }
  }

  /** Returns the refusal of an envelope without a run left; undefined when a run is left. */
  #spent(state: EnvelopeState, now: number): Refusal | undefined {
    const refused = spentOf(state, this.#book.state.remaining(state, now), now)
    return refused?.see === undefined ? refused : { ...refused, see: this.#parts.command(refused.see) }
  }

  #misplaced({ gateway }: Envelope): Refusal | undefined {
    if (gateway === this.#parts.gateway) return undefined
    return refusal(
      'wrong_gateway',
      `the envelope was signed for ${gateway}, and this gateway is ${this.#parts.gateway}`,
    )
  }
}

/** Returns how far a run is outside. The furthest envelopes are for other agents or targets: their check stops there. */
function distanceOf(exceeded: readonly Exceeded[]): number {
  const isOther = exceeded.some(({ limit }) => /^(environment|proposers|targets\b)/.test(limit))
  return exceeded.length + (isOther ? 1_000 : 0)
}

/** Returns the refusal of an envelope that is over or has not begun; undefined when in force. */
function untimely({ id, notBefore, expiresAt }: Envelope, now: number): Refusal | undefined {
  if (now >= Date.parse(expiresAt)) return refusal('expired', `the envelope ${id} expired at ${expiresAt}`)
  const waitMs = Date.parse(notBefore) - now
  if (waitMs <= 0) return undefined
  return refusal('expired', `the envelope ${id} begins at ${notBefore}`, {
    repeat: 'later',
    retryAfterMs: waitMs,
  })
}

/** Returns a refusal for an envelope without remaining budget. Undefined: the budget allows another run. */
function spentOf(
  { envelope: { id, budget }, aborts: uncompleted, spentAt }: EnvelopeState,
  { runs, today, aborts }: Remaining,
  now: number,
): Refusal | undefined {
  if (aborts === 0)
    return refusal(
      'suspended',
      `${numbered(uncompleted, 'run')} in the envelope ${id} did not complete: a person must lift the suspension`,
      { see: `breakwater envelope lift ${id} --key FILE` },
    )
  if (runs === 0)
    return refusal(
      'budget_spent',
      `the envelope ${id} allows ${numbered(budget.runs, 'run')}, and ${budget.runs === 1 ? 'it' : 'all'} began`,
    )
  if (today > 0) return undefined
  const first = spentAt.find((at) => at > now - 24 * HOUR_MS) ?? now
  const retryAfterMs = first + 24 * HOUR_MS - now
  return refusal(
    'budget_spent',
    `the envelope ${id} allows ${numbered(budget.perDay, 'run')} a day; the next may begin in ${formatDuration(Math.ceil(retryAfterMs / 60_000) * 60_000)}`,
    { repeat: 'later', retryAfterMs },
  )
}
