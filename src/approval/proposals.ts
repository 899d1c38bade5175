import { randomBytes } from 'node:crypto'
import type { GuardedExperiments, Plan } from '../experiments/guarded/guarded.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Spec } from '../experiments/guarded/spec.ts'
import type { Millis } from '../mesh/clock.ts'
import { type Agent, readOnly } from './agent.ts'
import { changedBetween, type RunHashes, type SignedApproval } from './approval.ts'
import type { Approvals } from './approvals.ts'
import type { DurableBook } from './durable-book.ts'
import type { Exceeded, HitTool } from './envelope.ts'
import type { Envelopes } from './envelopes.ts'
import { HOUR_MS, HourlyLimit } from './hourly-limit.ts'
import { type Refusal, refusal } from './refusal.ts'
import type { RunHasher } from './run-hashes.ts'

/** Lifetime of a proposal, in milliseconds: one hour. */
const PROPOSAL_LIFE_MS: Millis = 3_600_000

/**
 * Limit for open proposals of one agent, and for started proposals. A further proposal replaces the agent's oldest. The
 * config has at most 32 agents, so the proposals of all agents need no limit.
 */
const MAX_OF_AGENT = 8

/** Limit for new proposals of one agent within an hour. */
const MAX_PROPOSED = 60

/** The missing permission of a run: none, a person's approval, or none that would help without another spec. */
export type Needs = 'nothing' | 'approval' | 'change'

export interface Proposal extends RunHashes {
  readonly id: string
  readonly by: string
  readonly spec: Spec
  readonly firstStage: number
  readonly why: string
  /** The envelope that covers the run. Undefined: a person must approve the run. */
  readonly envelope: string | undefined
  /** The exceeded limits of the envelope with the fewest exceeded limits. */
  readonly exceeded: readonly Exceeded[]
  /** Why the envelope that covers the run cannot begin the run now; undefined without such an envelope. */
  readonly refused: Refusal | undefined
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  readonly plan: Plan
  readonly hit: readonly HitTool[]
  readonly sealed: string
  approval: (SignedApproval & { readonly signedBy: string }) | undefined
  started: Start | undefined
}

/** A start of a proposal: the key of `start_run`, and the result for every call with this key. */
export interface Start {
  readonly key: string
  readonly result: Promise<Started>
  isPending: boolean
}

export type Started = { readonly ok: true; readonly run: RunRecord } | Refusal

export interface ProposalsParts {
  readonly runs: Pick<GuardedExperiments, 'plan'>
  readonly book: DurableBook
  readonly hasher: RunHasher
  readonly envelopes: Envelopes
  readonly approvals: Approvals
}

/** The open proposals of agents. A proposal ends after an hour, or when the gateway stops. */
export class Proposals {
  readonly #parts: ProposalsParts
  readonly #open = new Map<string, Proposal>()
  readonly #proposed: HourlyLimit

  constructor(parts: ProposalsParts) {
    this.#parts = parts
    this.#proposed = new HourlyLimit(MAX_PROPOSED, () => parts.book.time.now())
  }

  /** Open proposals, the oldest first. */
  get list(): readonly Proposal[] {
    const now = this.#parts.book.time.now()
    for (const [id, { expiresAt, started }] of this.#open)
      if (expiresAt <= now && started?.isPending !== true) this.#open.delete(id)
    return [...this.#open.values()]
  }

  get(id: string): Proposal | undefined {
    return this.list.find((one) => one.id === id)
  }

  /** Returns the reasons against the run that no approval removes. Empty: the run could begin, or has begun. */
  refusalsOf({ spec, by, firstStage, started }: Proposal): readonly string[] {
    if (started !== undefined) return []
    return this.#parts.runs.plan(spec, { by, approvedBy: undefined, firstStage }).refusals
  }

  /** Creates a proposal, or returns an equal open proposal of the agent. Injects nothing. */
  async propose(
    agent: Agent,
    { spec, firstStage, why }: { readonly spec: Spec; readonly firstStage: number; readonly why: string },
  ): Promise<{ readonly ok: true; readonly proposal: Proposal } | Refusal> {
    const { book } = this.#parts
    const by = agent.name
    if (!agent.mayWrite) return book.refuse(by, 'propose_run', readOnly(agent))
    const problem = this.#unfit(spec)
    if (problem !== undefined) return book.refuse(by, 'propose_run', refusal('invalid', problem))
    const { plan, hit, sealed, hashes, envelope, exceeded, refused } = this.#examine(by, spec, firstStage)
    const known = this.list.find(
      (one) =>
        one.by === by &&
        one.started === undefined &&
        one.envelope === envelope &&
        one.refused?.code === refused?.code &&
        changedBetween(one, hashes).length === 0 &&
        one.why === why,
    )
    if (known !== undefined) return { ok: true, proposal: known }
    if (book.isNearlyFull)
      return refusal('busy', 'the ledger of approvals is nearly full: a person must restart the gateway')
    if (this.#proposed.isOver(by))
      return refusal('busy', `${by} made ${MAX_PROPOSED} proposals within an hour, the limit`, {
        repeat: 'later',
        retryAfterMs: HOUR_MS,
      })
    const proposal: Proposal = {
      ...hashes,
      id: `p-${randomBytes(9).toString('base64url').replaceAll(/[-_]/g, '0')}`,
      by,
      spec,
      firstStage,
      why,
      envelope,
      exceeded,
      refused,
      expiresAt: book.time.now() + PROPOSAL_LIFE_MS,
      plan,
      hit,
      sealed,
      approval: undefined,
      started: undefined,
    }
    const { id } = proposal
    const written = await book.write({
      kind: 'proposed',
      proposal: id,
      by,
      name: spec.name,
      why,
      envelope,
      ...hashes,
    })
    if (written !== undefined) return written
    this.#leave(MAX_OF_AGENT - 1, by, ({ started }) => started === undefined)
    this.#open.set(id, proposal)
    return { ok: true, proposal }
  }

  /** Returns what a run of the agent would need now, as `propose_run` does. Keeps nothing. */
  preview(by: string, spec: Spec): { readonly needs: Needs; readonly plan: Plan } {
    const { plan, envelope } = this.#examine(by, spec, 0)
    const problem = this.#unfit(spec)
    const refusals = problem === undefined ? plan.refusals : [problem, ...plan.refusals]
    const needs = refusals.length > 0 ? 'change' : envelope === undefined ? 'approval' : 'nothing'
    return { needs, plan: { ...plan, refusals } }
  }

  /** Returns the reason that no agent may propose a spec. Undefined: an agent may propose the spec. */
  #unfit(spec: Spec): string | undefined {
    return (
      unfitIn(spec) ??
      (this.#parts.hasher.hidesPartOf(spec)
        ? 'the spec has values of headers, which no signer is shown: only a person may run such an experiment'
        : undefined)
    )
  }

  #examine(by: string, spec: Spec, firstStage: number) {
    const { runs, hasher, envelopes } = this.#parts
    const plan = runs.plan(spec, { by, approvedBy: undefined, firstStage })
    const { hit, sealed, ...hashes } = hasher.of(spec, firstStage, plan)
    const { state, exceeded, refused } = envelopes.nearest({
      by,
      spec,
      firstStage,
      hit,
      targets: plan.targets,
    })
    return { plan, hit, sealed, hashes, envelope: state?.envelope.id, exceeded, refused }
  }

  /** Attaches a person's signed approval to the proposal. The run begins when the agent starts the run. */
  async approve(
    signed: SignedApproval,
  ): Promise<{ readonly ok: true; readonly proposal: Proposal } | Refusal> {
    const { approval, signature } = signed
    const { book, approvals } = this.#parts
    const refuse = (refused: Refusal) => book.refuse(signature.by, 'approve', refused)
    const id = approval.proposal
    if (book.state.runOf(id) !== undefined)
      return refuse(refusal('approval_used', `the proposal ${id} began a run already`))
    const proposal = this.get(id)
    if (proposal === undefined) return refuse(notOpen(id))
    const checked = approvals.check(signed, id, proposal, proposal.firstStage)
    if (!checked.ok) return refuse(checked)
    const written = await book.write({ kind: 'approved', signed, by: checked.by })
    if (written !== undefined) return written
    proposal.approval = { ...signed, signedBy: checked.by }
    return { ok: true, proposal }
  }

  /**
   * Attaches a start to the proposal, so that the same key returns the same run. Removes the start if the ledger has no
   * run of the proposal. The agent may then start the proposal again.
   */
  keepStart(proposal: Proposal, key: string, result: Promise<Started>): void {
    const start: Start = { key, result, isPending: true }
    proposal.started = start
    const settle = () => {
      start.isPending = false
      if (this.#parts.book.state.runOf(proposal.id) === undefined) proposal.started = undefined
      else this.#leave(MAX_OF_AGENT, proposal.by, ({ started }) => started?.isPending === false)
    }
    result.then(settle, settle)
  }

  /** Removes an agent's oldest proposals that match `isMeant`, beyond `limit`. */
  #leave(limit: number, by: string, isMeant: (proposal: Proposal) => boolean): void {
    const own = this.list.filter((one) => one.by === by && isMeant(one))
    for (const { id } of own.slice(0, Math.max(0, own.length - limit))) this.#open.delete(id)
  }
}

/** Returns the refusal for an id without an open proposal. */
export const notOpen = (id: string, more: { readonly see?: string } = {}): Refusal =>
  refusal(
    'expired',
    `there is no open proposal ${id.slice(0, 64)}: proposals end after an hour, and with the gateway`,
    more,
  )

/** Pattern of a run id. */
const RUN_ID = /^[0-9a-z]{6,12}-[0-9a-f]{8}$/

/** Returns a reason against the spec of an agent, besides its secrets; undefined without a reason. */
function unfitIn({ name, faults }: Spec): string | undefined {
  if (RUN_ID.test(name)) return `the name ${name} looks like the id of a run: choose another name`
  // The counts of a fault that matches headers would reveal the headers of other agents.
  const spying = faults.find(
    ({ match }) => (match as { readonly header?: unknown } | undefined)?.header !== undefined,
  )
  return spying && `the fault ${spying.name} matches headers, which only a person's experiment may`
}
