import { randomBytes } from 'node:crypto'
import {
  type Approval,
  APPROVAL_LIFE_MS,
  changedBetween,
  type RunHashes,
  type SignedApproval,
  untimely,
} from './approval.ts'
import type { DurableBook } from './durable-book.ts'
import { type Refusal, refusal } from './refusal.ts'
import type { Trust } from './trust.ts'

/** Approvals by persons. An approval permits one run: an agent's proposal, or a person's waiting run. */
export class Approvals {
  readonly #gateway: string
  readonly #trust: Trust
  readonly #book: DurableBook

  constructor(gateway: string, trust: Trust, book: DurableBook) {
    this.#gateway = gateway
    this.#trust = trust
    this.#book = book
  }

  /**
   * Returns the document that a person signs to approve a run. `id`: the id of a proposal, or of a person's waiting
   * run.
   */
  documentOf(id: string, { planHash, groundHash, targetsHash }: RunHashes, firstStage: number): Approval {
    const now = this.#book.time.now()
    return {
      format: 1,
      proposal: id,
      gateway: this.#gateway,
      planHash,
      groundHash,
      targetsHash,
      firstStage: firstStage + 1,
      issuedAt: new Date(now).toISOString(),
      expiresAt: new Date(now + APPROVAL_LIFE_MS).toISOString(),
      nonce: randomBytes(16).toString('base64url'),
    }
  }

  /**
   * Checks an approval. The checks for `expired` and `approval_used` come last. An approval with one of these refusals
   * has a trusted signature and the current hashes of the run.
   */
  check(
    { approval, signature }: SignedApproval,
    id: string,
    hashes: RunHashes,
    firstStage: number,
  ): { readonly ok: true; readonly by: string; readonly keyId: string } | Refusal {
    const verified = this.#trust.verify('approval', approval, signature)
    if (!verified.ok) return refusal('not_allowed', verified.why)
    if (approval.gateway !== this.#gateway)
      return refusal('wrong_gateway', 'the approval was signed for another gateway')
    const clockBack = this.#book.time.clockBack()
    if (clockBack !== undefined) return clockBack
    const changed = changedBetween(approval, hashes)
    if (changed.length > 0 || approval.firstStage !== firstStage + 1)
      return refusal(
        'plan_changed',
        `the approval is for another run: ${[...changed, 'first stage'].slice(0, Math.max(1, changed.length)).join(', ')} changed`,
      )
    if (approval.proposal !== id)
      return refusal('plan_changed', `the approval is for the proposal or run ${approval.proposal}`)
    const late = untimely(approval, this.#book.time.now())
    if (late !== undefined) return refusal('expired', late)
    return this.#book.state.isUsed(approval.nonce)
      ? refusal('approval_used', 'the approval was used before')
      : verified
  }

  /** Records a person's approval of a waiting run, and marks the nonce of the approval as used. */
  async use(signed: SignedApproval, by: string, run: string): Promise<Refusal | undefined> {
    const { nonce } = signed.approval
    return (
      (await this.#book.write({ kind: 'approved', signed, by })) ??
      (await this.#book.write({ kind: 'spent', proposal: run, by, run, envelope: undefined, nonce }))
    )
  }
}
