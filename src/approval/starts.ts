import { randomBytes } from 'node:crypto'
import type { GuardedExperiments, Survey } from '../experiments/guarded/guarded.ts'
import type { ApproverProof } from '../experiments/guarded/record.ts'
import type { Millis } from '../mesh/clock.ts'
import type { ActiveRuns, Starting } from './active-runs.ts'
import { type Agent, readOnly } from './agent.ts'
import type { Approvals } from './approvals.ts'
import type { DurableBook } from './durable-book.ts'
import type { Exceeded, HitTool } from './envelope.ts'
import type { Envelopes } from './envelopes.ts'
import { notOpen, type Proposal, type Proposals, type Started } from './proposals.ts'
import { type Refusal, refusal } from './refusal.ts'
import type { RunHasher } from './run-hashes.ts'
import type { Trust } from './trust.ts'

/** Suggested pause before another start while a run is active, in milliseconds. */
const BUSY_MS: Millis = 30_000

export interface StartsParts {
  readonly runs: Pick<GuardedExperiments, 'plan' | 'run' | 'running'>
  readonly trust: Trust
  readonly book: DurableBook
  readonly hasher: RunHasher
  readonly envelopes: Envelopes
  readonly approvals: Approvals
  readonly proposals: Proposals
  readonly active: ActiveRuns
  readonly isKilled: () => boolean
  /** Completes a command for a person, so that the command finds this gateway. */
  readonly command: (words: string) => string
  readonly isProtected: (server: string) => boolean
}

/** The permission for a run: a person's approval of the run, or an envelope. */
interface Permission {
  readonly approver: string
  readonly keyId: string | undefined
  readonly envelope: string | undefined
  /** Nonce of the approval. The start of the run marks the nonce as used. */
  readonly nonce: string | undefined
}

/**
 * Starts of proposed runs. A run begins only with a person's signed approval, or if a signed envelope covers the run.
 * Each start computes the hashes of plan, environment state and targets again.
 */
export class Starts {
  readonly #parts: StartsParts
  #last: Promise<unknown> = Promise.resolve()

  constructor(parts: StartsParts) {
    this.#parts = parts
  }

  /**
   * Begins the run of a proposal. A second call with the same `key` returns the same run. A proposal begins one run.
   */
  async start(agent: Agent, id: string, key: string): Promise<Started> {
    const { book, proposals, active } = this.#parts
    const refuse = (refused: Refusal) => book.refuse(agent.name, 'start_run', refused)
    if (!agent.mayWrite) return refuse(readOnly(agent))
    const proposal = proposals.get(id)
    if (proposal === undefined) return refuse(this.#notOpen(id))
    if (proposal.by !== agent.name)
      return refuse(refusal('not_allowed', `${id} is a proposal of ${proposal.by}`))
    const { started } = proposal
    if (started !== undefined) {
      if (started.key === key) return started.result
      return refuse(
        refusal(
          'approval_used',
          `the proposal ${id} was started before, with another key: propose the run again`,
        ),
      )
    }
    // One after the other, so that two starts cannot spend the same budget.
    const starting = active.starting(proposal.spec.name)
    const result = this.#last
      .then(async () => {
        const found = await this.#begin(agent, proposal, starting)
        return found.ok ? found : refuse(found)
      })
      .finally(() => active.begun(starting))
    this.#last = result.catch(() => undefined)
    proposals.keepStart(proposal, key, result)
    return result
  }

  #notOpen(id: string): Refusal {
    const run = this.#parts.book.state.runOf(id)
    return run === undefined
      ? notOpen(id, { see: 'propose_run' })
      : refusal('approval_used', `the proposal ${id} began a run already: ${run}`, { see: 'get_run' })
  }

  async #begin(agent: Agent, proposal: Proposal, starting: Starting): Promise<Started> {
    const permission = stopped(starting) ?? this.#permitted(proposal)
    if ('ok' in permission) return permission
    const { runs, trust, book, hasher, active, isKilled } = this.#parts
    const { spec, firstStage, id, hit } = proposal
    const { approver, keyId, envelope, nonce } = permission
    const proof: ApproverProof = {
      proved: 'key',
      trust: trust.fingerprint,
      proposal: id,
      keyId,
      envelope,
    }
    // The ledger entry needs the id of the run, so the id is generated before the run.
    const run = `${Math.floor(book.time.now()).toString(36)}-${randomBytes(4).toString('hex')}`
    const written = await book.write({ kind: 'spent', proposal: id, by: agent.name, run, envelope, nonce })
    if (written !== undefined) return written
    active.add(run, { envelope, hit, spec })
    let changed: Refusal | undefined
    const asked = await runs.run(spec, {
      by: agent.name,
      approvedBy: approver,
      firstStage,
      id: run,
      proof,
      recheck: (survey) => {
        changed = isKilled() ? this.#killed() : (stopped(starting) ?? hasher.changed(proposal, survey))
        return changed === undefined ? [] : [changed.message]
      },
    })
    if (asked.ok) return { ok: true, run: asked.run }
    active.failed(run)
    return changed ?? this.#coded(asked.refusals, hit)
  }

  /** Checks all conditions of a start. Returns a refusal, or the permission for the run. */
  #permitted(proposal: Proposal): Refusal | Permission {
    const { trust, book, runs, hasher, isKilled } = this.#parts
    const { by, spec, firstStage, hit } = proposal
    if (trust.size === 0)
      return refusal(
        'needs_approval',
        'no person is trusted: gateway.controlMcp.trust has no key, so no run can begin',
        { see: 'breakwater key new --name NAME' },
      )
    const clockBack = book.time.clockBack()
    if (clockBack !== undefined) return clockBack
    if (isKilled()) return this.#killed()
    const plan = runs.plan(spec, { by, approvedBy: undefined, firstStage })
    const changed = hasher.changed(proposal, plan)
    if (changed !== undefined) return changed
    if (plan.refusals.length > 0) return this.#coded(plan.refusals, hit)
    const permission = this.#permissionOf(proposal, plan.targets)
    if ('ok' in permission) return permission
    // The list of approvers may have changed since the signature.
    const { approver: approvedBy } = permission
    const { refusals } = runs.plan(spec, { by, approvedBy, firstStage, proof: { proved: 'key' } })
    return refusals.length > 0 ? this.#coded(refusals, hit) : permission
  }

  /**
   * Returns the proposal's approval. If the approval is missing, expired or used, returns an envelope that covers the
   * run.
   */
  #permissionOf(proposal: Proposal, targets: Survey['targets']): Refusal | Permission {
    const { approvals, envelopes } = this.#parts
    const { by, spec, firstStage, hit, approval, id } = proposal
    const checked = approval && approvals.check(approval, id, proposal, firstStage)
    if (checked?.ok === true)
      return {
        approver: checked.by,
        keyId: checked.keyId,
        envelope: undefined,
        nonce: approval!.approval.nonce,
      }
    if (checked !== undefined && checked.code !== 'expired' && checked.code !== 'approval_used')
      return checked
    const { state, exceeded, refused } = envelopes.nearest({ by, spec, firstStage, hit, targets })
    if (state !== undefined)
      return { approver: state.by, keyId: undefined, envelope: state.envelope.id, nonce: undefined }
    const unpermitted = checked ?? refused
    if (unpermitted !== undefined) return unpermitted
    const see = this.#parts.command(`breakwater proposal approve ${id} --key FILE`)
    if (exceeded.length === 0)
      return refusal('needs_approval', 'no envelope is in force here: a person must approve the run', {
        repeat: 'later',
        see,
      })
    const limits = exceeded.map(inWords).join('; ')
    return refusal('outside_envelope', `the run is outside of the envelope: ${limits}`, {
      repeat: 'later',
      exceeded,
      see,
    })
  }

  #killed(): Refusal {
    return refusal('killed', 'the kill switch is on: a person must lift the kill', {
      repeat: 'later',
      see: this.#parts.command('breakwater chaos lift'),
    })
  }

  /** Returns the refusals of a plan as one refusal, with a code for agents. */
  #coded(refusals: readonly string[], hit: readonly HitTool[]): Refusal {
    const { runs, isKilled, isProtected } = this.#parts
    const message = refusals.join('; ')
    if (isKilled()) return this.#killed()
    if (runs.running !== undefined)
      return refusal('busy', message, { repeat: 'later', retryAfterMs: BUSY_MS })
    return refusal(hit.some(({ server }) => isProtected(server)) ? 'protected' : 'invalid', message)
  }
}

const stopped = ({ stoppedBy }: Starting) =>
  stoppedBy === undefined
    ? undefined
    : refusal('not_allowed', `${stoppedBy} stopped the run before it began: propose the run again`)

const inWords = ({ limit, allowed, asked }: Exceeded) => `${limit} allows ${allowed}, not ${asked}`
