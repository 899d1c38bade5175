import { randomBytes } from 'node:crypto'
import type { Asked, Plan, Request, Survey } from '../experiments/guarded/guarded.ts'
import { type ApproverProof, isOver, type RunRecord } from '../experiments/guarded/record.ts'
import type { Spec, SpecFault } from '../experiments/guarded/spec.ts'
import type { Done } from '../experiments/experiments.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { formatDuration } from '../units/duration.ts'
import {
  type Approval,
  APPROVAL_LIFE_MS,
  changedBetween,
  type RunHashes,
  type SignedApproval,
  type SignedLift,
  untimely,
} from './approval.ts'
import { Book, type EnvelopeState, type Remaining } from './book.ts'
import { digestOf } from './digest.ts'
import {
  type Envelope,
  envelopeSchema,
  type Exceeded,
  type HitTool,
  outsideOf,
  type SignedEnvelope,
  unsoundIn,
} from './envelope.ts'
import type { NewEntry, OpenedLedger } from './ledger.ts'
import { type Refusal, refusal, type RefusalCode } from './refusal.ts'
import type { Trust } from './trust.ts'

/** Life of a proposal, in milliseconds. */
const PROPOSAL_LIFE_MS: Millis = 3_600_000

/** Most open proposals of an agent, and of all agents. An agent's new proposal replaces the agent's oldest. */
const MAX_OF_AGENT = 8
const MAX_PROPOSALS = 128

/** Most refusals of an agent written in an hour; further refusals are only logged. */
const MAX_REFUSALS = 20

/** Most new proposals of an agent in an hour. */
const MAX_PROPOSED = 60
const HOUR_MS = 3_600_000

/** A clock this much behind the latest time seen makes envelopes and approvals wait. */
const CLOCK_BACK_MS = 5_000

/** Time between entries that keep the latest time seen, in milliseconds. */
const CLOCK_EVERY_MS: Millis = 10 * 60_000

/** Suggested pause before another start while a run is active, in milliseconds. */
const BUSY_MS: Millis = 30_000

/** An agent of the control MCP server. */
export interface Agent {
  readonly name: string
  readonly mayWrite: boolean
}

export interface Proposal extends RunHashes {
  readonly id: string
  readonly by: string
  readonly spec: Spec
  readonly firstStage: number
  readonly why: string
  /** The envelope that the run is inside of; undefined: a person must approve. */
  readonly envelope: string | undefined
  /** Limits of the nearest envelope that the run exceeds. */
  readonly exceeded: readonly Exceeded[]
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  readonly plan: Plan
  readonly hit: readonly HitTool[]
  readonly sealed: string
  approval: (SignedApproval & { readonly signedBy: string; readonly keyId: string }) | undefined
  /** The key of `start_run` and its result. */
  started: { readonly key: string; readonly result: Promise<Started> } | undefined
}

export type Started = { readonly ok: true; readonly run: RunRecord } | Refusal

/** The guarded experiments, as used by agents' runs. */
export interface Runs {
  plan(spec: Spec, request: Request): Plan
  run(spec: Spec, request: Request): Promise<Asked>
  stop(name: string, by: string, why: string): Done
  get(name: string): RunRecord | undefined
  list(): readonly RunRecord[]
  readonly running: string | undefined
}

export interface AgentRunsParts {
  readonly clock: Clock
  readonly gateway: string
  readonly environment: string
  readonly trust: Trust
  readonly opened: OpenedLedger
  readonly runs: Runs
  readonly hitToolsOf: (survey: Pick<Survey, 'targets'>, spec: Spec) => readonly HitTool[]
  readonly groundOf: (spec: Spec) => string
  /** Returns the spec without secrets, to show and sign. */
  readonly withoutSecrets: (spec: Spec) => Spec
  /** Whether a fault may have any text, or any number, at a path of its fields. */
  readonly isFreeText: (fault: SpecFault, path: readonly string[]) => boolean
  /** Distinct tenants among recent calls to the targets; undefined without recent calls. */
  readonly tenantsOf: (hit: readonly HitTool[]) => number | undefined
  readonly isKilled: () => boolean
  readonly isProtected: (server: string) => boolean
  /** Hears of each order and refusal, for the log. */
  readonly emit: (event: {
    readonly order: string
    readonly by: string
    readonly result: string
    readonly detail: string
  }) => void
}

/**
 * Runs that agents propose and begin. A run begins only inside an envelope that a person signed, or with a person's
 * signed approval; each start computes plan, ground and targets again.
 */
export class AgentRuns {
  readonly #parts: AgentRunsParts
  readonly #book = new Book()
  readonly #proposals = new Map<string, Proposal>()
  /** Runs that agents began, by the run's id. */
  readonly #runs = new Map<
    string,
    { readonly envelope: string | undefined; readonly hit: readonly HitTool[]; readonly spec: Spec }
  >()
  /** Key of `sealed`. */
  readonly #seal = randomBytes(32).toString('hex')
  readonly #proposed = new Map<string, { since: number; count: number }>()
  readonly #refusals = new Map<string, { since: number; count: number }>()
  /** Wall and monotonic time of one instant, to notice a clock that moved back. */
  #wallAt: number
  #monotonicAt: number
  #cancel: Cancel | undefined
  #lastStart: Promise<unknown> = Promise.resolve()

  constructor(parts: AgentRunsParts, earlier: readonly RunRecord[]) {
    this.#parts = parts
    const { clock, opened } = parts
    for (const entry of opened.entries) this.#book.add(entry)
    this.#recount(earlier)
    this.#wallAt = clock.wall()
    this.#monotonicAt = clock.now()
    this.#closeOpenRuns()
    this.#keepTime()
  }

  /** Counts runs of an earlier process without an end as uncompleted. */
  #closeOpenRuns(): void {
    for (const { run, envelope } of this.#book.openRuns)
      void this.#write({ kind: 'over', run, state: 'failed', envelope, reached: [] })
  }

  /** Counts runs of the journal that the ledger does not know: somebody removed or restored the ledger. */
  #recount(earlier: readonly RunRecord[]): void {
    for (const { id, proof, requestedAt, state } of earlier) {
      const envelope = proof?.envelope
      if (envelope === undefined || this.#book.knowsRun(id)) continue
      this.#book.add({
        kind: 'spent',
        at: requestedAt,
        by: '',
        proposal: proof?.proposal ?? id,
        run: id,
        envelope,
        nonce: undefined,
      })
      this.#book.add({ kind: 'over', at: requestedAt, run: id, state, envelope, reached: [] })
    }
  }

  get gateway(): string {
    return this.#parts.gateway
  }

  get environment(): string {
    return this.#parts.environment
  }

  get trust(): Trust {
    return this.#parts.trust
  }

  /** Open proposals, the oldest first. */
  get proposals(): readonly Proposal[] {
    this.#dropExpired()
    return [...this.#proposals.values()]
  }

  proposal(id: string): Proposal | undefined {
    return this.proposals.find((one) => one.id === id)
  }

  get envelopes(): readonly (EnvelopeState & {
    readonly remaining: Remaining
    readonly isExpired: boolean
  })[] {
    const now = this.#now()
    return this.#book.envelopes.map((state) => ({
      ...state,
      remaining: this.#book.remaining(state, now),
      isExpired: now >= Date.parse(state.envelope.expiresAt),
    }))
  }

  /** Installs an envelope that a trusted person signed. */
  async install(
    signed: SignedEnvelope,
  ): Promise<{ readonly ok: true; readonly envelope: Envelope } | Refusal> {
    const read = envelopeSchema.safeParse(signed.envelope)
    const by = signed.signature.by
    if (!read.success) {
      const { path = [], message = '' } = read.error.issues[0] ?? {}
      return this.#refuse(
        by,
        'envelope',
        refusal('invalid', `the envelope cannot be used: ${path.join('.')}: ${message}`),
      )
    }
    const envelope = read.data
    const verified = this.#parts.trust.verify('envelope', signed.envelope, signed.signature)
    if (!verified.ok) return this.#refuse(by, 'envelope', refusal('not_allowed', verified.why))
    const problems = unsoundIn(envelope)
    if (problems.length > 0) return this.#refuse(by, 'envelope', refusal('invalid', problems.join('; ')))
    const misplaced = this.#misplaced(envelope)
    if (misplaced !== undefined) return this.#refuse(by, 'envelope', misplaced)
    if (this.#book.envelope(envelope.id) !== undefined)
      return this.#refuse(
        by,
        'envelope',
        refusal('invalid', `there is an envelope ${envelope.id} already: sign one with another id`),
      )
    const written = await this.#write({ kind: 'envelope', signed, by: verified.by })
    return written ?? { ok: true, envelope }
  }

  async withdraw(id: string, by: string): Promise<{ readonly ok: true } | Refusal> {
    if (this.#book.envelope(id) === undefined) return refusal('not_found', `there is no envelope ${id}`)
    return (await this.#write({ kind: 'withdrawn', envelope: id, by })) ?? { ok: true }
  }

  /** Lifts a suspension, by a person's signed order. */
  async lift(signed: SignedLift): Promise<{ readonly ok: true } | Refusal> {
    const { lift, signature } = signed
    const verified = this.#parts.trust.verify('lift', lift, signature)
    if (!verified.ok) return this.#refuse(signature.by, 'lift', refusal('not_allowed', verified.why))
    if (lift.gateway !== this.#parts.gateway)
      return this.#refuse(
        signature.by,
        'lift',
        refusal('wrong_gateway', 'the order was signed for another gateway'),
      )
    if (this.#book.isUsed(lift.nonce))
      return this.#refuse(signature.by, 'lift', refusal('approval_used', 'the order was used before'))
    if (this.#book.envelope(lift.envelope) === undefined)
      return refusal('not_found', `there is no envelope ${lift.envelope}`)
    return (await this.#write({ kind: 'lifted', signed, by: verified.by })) ?? { ok: true }
  }

  /**
   * Returns the hashes of a run as the gateway sees the run now. `sealed` stands for the spec with its secrets, which
   * nobody is shown: a digest under a key of this process.
   */
  hashesOf(
    spec: Spec,
    firstStage: number,
    survey: Pick<Survey, 'targets'>,
  ): RunHashes & { readonly hit: readonly HitTool[]; readonly sealed: string } {
    const hit = this.#parts.hitToolsOf(survey, spec)
    const sealed = digestOf([this.#seal, spec])
    return {
      planHash: digestOf({ spec: this.#parts.withoutSecrets(spec), firstStage, sealed }),
      groundHash: digestOf(this.#parts.groundOf(spec)),
      targetsHash: digestOf(hit),
      hit,
      sealed,
    }
  }

  /** Makes a proposal, or returns an equal open proposal of the agent. Injects nothing. */
  async propose(
    agent: Agent,
    { spec, firstStage, why }: { readonly spec: Spec; readonly firstStage: number; readonly why: string },
  ): Promise<{ readonly ok: true; readonly proposal: Proposal } | Refusal> {
    if (!agent.mayWrite) return this.#refuse(agent.name, 'propose_run', readOnly(agent))
    const problem = unfitIn(spec)
    if (problem !== undefined) return this.#refuse(agent.name, 'propose_run', refusal('invalid', problem))
    const plan = this.#parts.runs.plan(spec, this.#requestOf(agent.name, firstStage, undefined))
    const { hit, sealed, ...hashes } = this.hashesOf(spec, firstStage, plan)
    const nearest = this.#nearest(agent.name, spec, firstStage, hit, plan.targets)
    const known = this.proposals.find(
      (one) =>
        one.by === agent.name &&
        one.started === undefined &&
        one.envelope === nearest.envelope?.id &&
        changedBetween(one, hashes).length === 0 &&
        one.why === why,
    )
    if (known !== undefined) return { ok: true, proposal: known }
    const now = this.#now()
    if (this.#parts.opened.ledger.isNearlyFull)
      return refusal('busy', 'the ledger of approvals is nearly full: a person must restart the gateway')
    if (this.#isOver(this.#proposed, agent.name, MAX_PROPOSED))
      return refusal('busy', `${agent.name} made ${MAX_PROPOSED} proposals within an hour, the limit`, {
        repeat: 'later',
        retryAfterMs: HOUR_MS,
      })
    const { envelope, exceeded } = nearest
    const proposal: Proposal = {
      ...hashes,
      id: `p-${randomBytes(9).toString('base64url').replaceAll(/[-_]/g, '0')}`,
      by: agent.name,
      spec,
      firstStage,
      why,
      envelope: envelope?.id,
      exceeded,
      expiresAt: now + PROPOSAL_LIFE_MS,
      plan,
      hit,
      sealed,
      approval: undefined,
      started: undefined,
    }
    const { id, by } = proposal
    const written = await this.#write({
      kind: 'proposed',
      proposal: id,
      by,
      name: spec.name,
      why,
      envelope: envelope?.id,
      ...hashes,
    })
    if (written !== undefined) return written
    this.#keep(proposal)
    return { ok: true, proposal }
  }

  /** Keeps a person's signed approval with its proposal. The run begins when the agent starts the run. */
  async approve(
    signed: SignedApproval,
  ): Promise<{ readonly ok: true; readonly proposal: Proposal } | Refusal> {
    const { approval, signature } = signed
    const refuse = (code: RefusalCode, message: string) =>
      this.#refuse(signature.by, 'approve', refusal(code, message))
    const proposal = this.proposal(approval.proposal)
    if (this.#book.runOf(approval.proposal) !== undefined)
      return refuse('approval_used', `the proposal ${approval.proposal} began a run already`)
    if (proposal === undefined)
      return refuse(
        'expired',
        `there is no open proposal ${approval.proposal}: proposals end after an hour, and with the gateway`,
      )
    const checked = this.check(signed, proposal.id, proposal, proposal.firstStage)
    if (!checked.ok) return this.#refuse(signature.by, 'approve', checked)
    const written = await this.#write({ kind: 'approved', signed, by: checked.by })
    if (written !== undefined) return written
    proposal.approval = { ...signed, signedBy: checked.by, keyId: checked.keyId }
    return { ok: true, proposal }
  }

  /** Returns the document that a person signs to approve a run; `id` of a proposal, or of a person's waiting run. */
  approvalOf(id: string, { planHash, groundHash, targetsHash }: RunHashes, firstStage: number): Approval {
    const now = this.#now()
    return {
      format: 1,
      proposal: id,
      gateway: this.#parts.gateway,
      planHash,
      groundHash,
      targetsHash,
      firstStage: firstStage + 1,
      issuedAt: new Date(now).toISOString(),
      expiresAt: new Date(now + APPROVAL_LIFE_MS).toISOString(),
      nonce: randomBytes(16).toString('base64url'),
    }
  }

  /** Checks the signature, times and hashes of an approval, for agents' proposals and persons' waiting runs. */
  check(
    { approval, signature }: SignedApproval,
    id: string,
    hashes: RunHashes,
    firstStage: number,
  ): { readonly ok: true; readonly by: string; readonly keyId: string } | Refusal {
    const verified = this.#parts.trust.verify('approval', approval, signature)
    if (!verified.ok) return refusal('not_allowed', verified.why)
    if (approval.gateway !== this.#parts.gateway)
      return refusal('wrong_gateway', 'the approval was signed for another gateway')
    const clockBack = this.#clockBack()
    if (clockBack !== undefined) return clockBack
    const late = untimely(approval, this.#now())
    if (late !== undefined) return refusal('expired', late)
    if (this.#book.isUsed(approval.nonce)) return refusal('approval_used', 'the approval was used before')
    if (approval.proposal !== id)
      return refusal('plan_changed', `the approval is for the proposal or run ${approval.proposal}`)
    const changed = changedBetween(approval, hashes)
    if (changed.length > 0 || approval.firstStage !== firstStage + 1)
      return refusal(
        'plan_changed',
        `the approval is for another run: ${[...changed, 'first stage'].slice(0, Math.max(1, changed.length)).join(', ')} changed`,
      )
    return verified
  }

  /** Uses up the nonce of a person's approval of a waiting run. */
  async useApproval(signed: SignedApproval, by: string, run: string): Promise<Refusal | undefined> {
    return (
      (await this.#write({ kind: 'approved', signed, by })) ??
      (await this.#write({
        kind: 'spent',
        proposal: run,
        by,
        run,
        envelope: undefined,
        nonce: signed.approval.nonce,
      }))
    )
  }

  /** Begins the run of a proposal. The same `key` returns the same run; a proposal begins one run. */
  start(agent: Agent, id: string, key: string): Promise<Started> {
    if (!agent.mayWrite) return Promise.resolve(this.#refuse(agent.name, 'start_run', readOnly(agent)))
    const proposal = this.proposal(id)
    if (proposal === undefined) return Promise.resolve(this.#unknown(agent, id))
    if (proposal.by !== agent.name)
      return Promise.resolve(
        this.#refuse(
          agent.name,
          'start_run',
          refusal('not_allowed', `${id} is a proposal of ${proposal.by}`),
        ),
      )
    const { started } = proposal
    if (started !== undefined) {
      if (started.key === key) return started.result
      const used = refusal(
        'approval_used',
        `the proposal ${id} was started before, with another key: propose the run again`,
      )
      return Promise.resolve(this.#refuse(agent.name, 'start_run', used))
    }
    // One after the other, so that two starts cannot spend the same budget.
    const result = this.#lastStart.catch(ignore).then(async () => {
      const found = await this.#begin(agent, proposal)
      // A refusal before anything was spent leaves the proposal as it was.
      if (!found.ok && this.#book.runOf(id) === undefined) proposal.started = undefined
      return found.ok ? found : this.#refuse(agent.name, 'start_run', found)
    })
    this.#lastStart = result
    proposal.started = { key, result }
    return result
  }

  #unknown(agent: Agent, id: string): Refusal {
    const run = this.#book.runOf(id)
    const found =
      run === undefined
        ? refusal(
            'expired',
            `there is no open proposal ${id.slice(0, 64)}: proposals end after an hour, and with the gateway`,
            { see: 'propose_run' },
          )
        : refusal('approval_used', `the proposal ${id} began a run already: ${run}`, { see: 'get_run' })
    return this.#refuse(agent.name, 'start_run', found)
  }

  async #begin(agent: Agent, proposal: Proposal): Promise<Started> {
    const refused = this.#whyNot(agent, proposal)
    if ('ok' in refused) return refused
    const { spec, firstStage, id } = proposal
    const { envelope, proof, approver } = refused
    // The record of the run needs its id, so the run's request brings the id with it.
    const run = `${Math.floor(this.#now()).toString(36)}-${randomBytes(4).toString('hex')}`
    const nonce = proposal.approval?.approval.nonce
    const written = await this.#write({ kind: 'spent', proposal: id, by: agent.name, run, envelope, nonce })
    if (written !== undefined) return written
    this.#runs.set(run, { envelope, hit: proposal.hit, spec })
    let changed: Refusal | undefined
    const asked = await this.#parts.runs.run(spec, {
      ...this.#requestOf(agent.name, firstStage, approver),
      id: run,
      proof,
      recheck: (survey) => {
        changed = this.#parts.isKilled() ? killed() : this.#changed(proposal, survey)
        return changed === undefined ? [] : [changed.message]
      },
    })
    if (asked.ok) return { ok: true, run: asked.run }
    if (this.#runs.delete(run))
      void this.#write({ kind: 'over', run, state: 'failed', envelope, reached: [] })
    return changed ?? this.#coded(asked.refusals, proposal.hit)
  }

  /** Checks everything that a start needs. Returns a refusal, or the grounds on which the run begins. */
  #whyNot(
    agent: Agent,
    proposal: Proposal,
  ):
    | Refusal
    | { readonly envelope: string | undefined; readonly proof: ApproverProof; readonly approver: string } {
    const { trust, runs, isKilled } = this.#parts
    const { spec, firstStage, approval } = proposal
    const seeApprove = `breakwater proposal approve ${proposal.id} --key FILE`
    if (trust.size === 0)
      return refusal(
        'needs_approval',
        'no person is trusted: gateway.controlMcp.trust has no key, so no run can begin',
        {
          see: 'breakwater key new --name NAME',
        },
      )
    const clockBack = this.#clockBack()
    if (clockBack !== undefined) return clockBack
    if (isKilled()) return killed()
    const proved = { proved: 'key' } as const
    const named = approval?.signedBy ?? this.#book.envelope(proposal.envelope ?? '')?.by ?? 'a person'
    const plan = runs.plan(spec, { ...this.#requestOf(agent.name, firstStage, named), proof: proved })
    const changed = this.#changed(proposal, plan)
    if (changed !== undefined) return changed
    if (plan.refusals.length > 0) return this.#coded(plan.refusals, proposal.hit)
    const base = { proved: 'key' as const, trust: trust.fingerprint, proposal: proposal.id }
    if (approval !== undefined) {
      const checked = this.check(approval, proposal.id, proposal, firstStage)
      if (!checked.ok) return checked
      return {
        envelope: undefined,
        proof: { ...base, keyId: checked.keyId, envelope: undefined },
        approver: checked.by,
      }
    }
    const hit = this.#parts.hitToolsOf(plan, spec)
    const { envelope, exceeded, refused } = this.#nearest(agent.name, spec, firstStage, hit, plan.targets)
    if (refused !== undefined) return refused
    if (envelope === undefined && exceeded.length === 0)
      return refusal('needs_approval', 'no envelope is in force here: a person must approve the run', {
        repeat: 'later',
        see: seeApprove,
      })
    if (envelope === undefined)
      return refusal(
        'outside_envelope',
        `the run is outside of the envelope: ${exceeded.map(inWords).join('; ')}`,
        {
          exceeded,
          see: seeApprove,
        },
      )
    const state = this.#book.envelope(envelope.id)!
    return {
      envelope: envelope.id,
      proof: { ...base, keyId: undefined, envelope: envelope.id },
      approver: state.by,
    }
  }

  /** Returns the refusal of a plan under a code for agents. */
  #coded(refusals: readonly string[], hit: readonly HitTool[]): Refusal {
    const { runs, isKilled, isProtected } = this.#parts
    const message = refusals.join('; ')
    if (isKilled()) return killed()
    if (runs.running !== undefined)
      return refusal('busy', message, { repeat: 'later', retryAfterMs: BUSY_MS })
    return refusal(hit.some(({ server }) => isProtected(server)) ? 'protected' : 'invalid', message)
  }

  #changed(proposal: Proposal, survey: Pick<Survey, 'targets'>): Refusal | undefined {
    const changed = changedBetween(proposal, this.hashesOf(proposal.spec, proposal.firstStage, survey))
    if (changed.length === 0) return undefined
    return refusal(
      'plan_changed',
      `since the proposal, ${changed.join(' and ')} changed: propose the run again`,
      { see: 'propose_run' },
    )
  }

  /**
   * Returns the usable envelope that the run is inside of. Without one: what the run exceeds of the envelope with the
   * fewest exceeded limits, or the refusal of an envelope that only lacks budget or time.
   */
  #nearest(
    by: string,
    spec: Spec,
    firstStage: number,
    hit: readonly HitTool[],
    targets: Survey['targets'],
  ): { readonly envelope?: Envelope; readonly exceeded: readonly Exceeded[]; readonly refused?: Refusal } {
    const now = this.#now()
    let nearest: readonly Exceeded[] | undefined
    let refused: Refusal | undefined
    for (const state of this.#book.envelopes) {
      const { envelope, isWithdrawn } = state
      if (isWithdrawn) continue
      const misplaced = this.#misplaced(envelope) ?? this.#untimely(envelope, now)
      if (misplaced !== undefined) {
        refused ??= misplaced
        continue
      }
      const exceeded = outsideOf(envelope, {
        by,
        environment: this.#parts.environment,
        spec,
        firstStage,
        hit,
        now,
        covered: targets.servers.flatMap(({ name: server, tools }) =>
          tools.map((tool) => ({ server, tool })),
        ),
        isFreeText: this.#parts.isFreeText,
        tenants: this.#parts.tenantsOf(hit),
        completedShare: (identity, fault) => this.#book.completedShare(identity, faultDigest(fault), now),
      })
      if (exceeded.length > 0) {
        if (nearest === undefined || exceeded.length < nearest.length) nearest = exceeded
        continue
      }
      const spent = this.#spent(state, now)
      if (spent === undefined) return { envelope, exceeded: [] }
      refused = spent
    }
    // A run inside of a used-up envelope is told so; otherwise the exceeded limits help more.
    const isInsideOne = refused?.code === 'budget_spent' || refused?.code === 'suspended'
    if (nearest !== undefined && !isInsideOne) return { exceeded: nearest }
    return { exceeded: [], ...(refused !== undefined && { refused }) }
  }

  #misplaced({ gateway }: Envelope): Refusal | undefined {
    if (gateway === this.#parts.gateway) return undefined
    return refusal(
      'wrong_gateway',
      `the envelope was signed for ${gateway}, and this gateway is ${this.#parts.gateway}`,
    )
  }

  #untimely({ id, notBefore, expiresAt }: Envelope, now: number): Refusal | undefined {
    if (now >= Date.parse(expiresAt)) return refusal('expired', `the envelope ${id} expired at ${expiresAt}`)
    const waitMs = Date.parse(notBefore) - now
    if (waitMs <= 0) return undefined
    return refusal('expired', `the envelope ${id} begins at ${notBefore}`, {
      repeat: 'later',
      retryAfterMs: waitMs,
    })
  }

  #spent(state: EnvelopeState, now: number): Refusal | undefined {
    const { envelope } = state
    const { runs, today, aborts } = this.#book.remaining(state, now)
    if (aborts === 0)
      return refusal(
        'suspended',
        `${state.aborts} runs in the envelope ${envelope.id} did not complete: a person must lift the suspension`,
        {
          see: `breakwater envelope lift ${envelope.id} --key FILE`,
        },
      )
    if (runs === 0)
      return refusal(
        'budget_spent',
        `the envelope ${envelope.id} allows ${envelope.budget.runs} runs, and all began`,
      )
    if (today > 0) return undefined
    const first = state.spentAt.filter((at) => at > now - 24 * HOUR_MS)[0] ?? now
    const retryAfterMs = first + 24 * HOUR_MS - now
    return refusal(
      'budget_spent',
      `the envelope ${envelope.id} allows ${envelope.budget.perDay} runs a day; the next may begin in ${formatDuration(Math.ceil(retryAfterMs / 60_000) * 60_000)}`,
      { repeat: 'later', retryAfterMs },
    )
  }

  /** Ends a run, or with `all` each waiting and current run. Always allowed, and repeatable. */
  stop(agent: Agent, wanted: { readonly run: string } | 'all', why: string): readonly RunRecord[] | Refusal {
    const { runs } = this.#parts
    const all = runs.list()
    const isNamed = (key: 'id' | 'name') => (run: RunRecord) => wanted !== 'all' && run[key] === wanted.run
    // An id first: a plan may have the name of another run.
    const byId = all.filter(isNamed('id'))
    const named = byId.length > 0 ? byId : all.filter(isNamed('name'))
    const found = wanted === 'all' ? all.filter((run) => !isOver(run)) : named
    if (found.length === 0 && wanted !== 'all')
      return refusal('not_found', `there is no run ${wanted.run.slice(0, 64)}`)
    for (const run of found) if (!isOver(run)) runs.stop(run.name, agent.name, why)
    this.#parts.emit({ order: 'stop_run', by: agent.name, result: 'stopped', detail: why })
    return found.map((run) => runs.get(run.name) ?? run)
  }

  /** Hears of the end of each run. A fault counts for the ladder if the run injected the fault often enough. */
  ended(run: RunRecord): void {
    const known = this.#runs.get(run.id)
    if (known === undefined) return
    this.#runs.delete(run.id)
    const { envelope, hit, spec } = known
    const share = Math.max(0, ...run.stages.map((stage) => stage.share))
    const identities = [...new Set(hit.map(({ identity }) => identity))]
    const isProven = ({ name }: SpecFault) =>
      (run.faults.find((fault) => fault.name === name)?.injected ?? 0) >= spec.gate.minimum
    const proven = run.state === 'completed' ? spec.faults.filter(isProven).map(faultDigest) : []
    const reached = identities.flatMap((identity) => proven.map((fault) => ({ identity, fault, share })))
    const entry = { kind: 'over', run: run.id, state: run.state, envelope, reached } as const
    // Counted before the write, so that no start comes in between.
    this.#book.add({ ...entry, at: Math.floor(this.#now()) })
    void this.#write(entry)
  }

  /** Returns why an active run of an agent must end: its targets grew, or it exceeds its envelope. Call while it runs. */
  exceededBy(run: string, targets: Survey['targets'], hitsPerMinute: number): string | undefined {
    const known = this.#runs.get(run)
    if (known === undefined) return undefined
    const { envelope: id, hit, spec } = known
    const state = id === undefined ? undefined : this.#book.envelope(id)
    if (state?.isWithdrawn === true) return `the envelope ${id} was withdrawn`
    const allowed = new Set(hit.map(digestOf))
    const added = this.#parts.hitToolsOf({ targets }, spec).find((tool) => !allowed.has(digestOf(tool)))
    if (added !== undefined)
      return `the targets changed during the run: ${added.server}/${added.tool} (${added.effect}) was not among the permitted targets`
    const most = state?.envelope.traffic?.hitsPerMinute
    return most !== undefined && hitsPerMinute > most
      ? `the run injected ${hitsPerMinute} faults within a minute, and its envelope allows ${most}`
      : undefined
  }

  async close(): Promise<void> {
    this.#cancel?.()
    await this.#write({ kind: 'clock' })
    await this.#parts.opened.ledger.close()
  }

  #keepTime(): void {
    this.#cancel = this.#parts.clock.after(CLOCK_EVERY_MS, () => {
      if (this.#book.envelopes.length > 0 && this.#clockBack() === undefined)
        void this.#write({ kind: 'clock' })
      this.#keepTime()
    })
  }

  /** Returns the wall time, never earlier than a time seen before. */
  #now(): number {
    return Math.max(this.#parts.clock.wall(), this.#seen())
  }

  /** The latest time known to have passed: by the monotonic clock since the start, and by the ledger. */
  #seen(): number {
    return Math.max(this.#book.latest, this.#wallAt + (this.#parts.clock.now() - this.#monotonicAt))
  }

  #clockBack(): Refusal | undefined {
    const behind = this.#seen() - this.#parts.clock.wall()
    // After a correction forwards, later looks compare with the corrected time.
    if (behind < 0) {
      this.#wallAt = this.#parts.clock.wall()
      this.#monotonicAt = this.#parts.clock.now()
    }
    if (behind <= CLOCK_BACK_MS) return undefined
    return refusal(
      'clock_back',
      `the clock of the gateway is ${formatDuration(Math.round(behind / 1_000) * 1_000)} behind a time seen before`,
      {
        repeat: 'later',
        retryAfterMs: Math.ceil(behind),
      },
    )
  }

  #requestOf(by: string, firstStage: number, approvedBy: string | undefined): Request {
    return { by, approvedBy, firstStage }
  }

  #keep(proposal: Proposal): void {
    this.#dropExpired()
    const own = [...this.#proposals.values()].filter(({ by }) => by === proposal.by)
    if (own.length >= MAX_OF_AGENT) this.#proposals.delete(own[0]!.id)
    else if (this.#proposals.size >= MAX_PROPOSALS)
      this.#proposals.delete(this.#proposals.keys().next().value!)
    this.#proposals.set(proposal.id, proposal)
  }

  #dropExpired(): void {
    const now = this.#now()
    for (const [id, { expiresAt }] of this.#proposals) if (expiresAt <= now) this.#proposals.delete(id)
  }

  /** Counts an event of a name; returns whether the name has more than `most` within an hour. */
  #isOver(counts: Map<string, { since: number; count: number }>, by: string, most: number): boolean {
    const now = this.#now()
    const counted = counts.get(by)
    const hour = counted === undefined || now - counted.since > HOUR_MS ? { since: now, count: 0 } : counted
    // Signers may claim any name. Names beyond the limit count together.
    if (counted === undefined && counts.size >= MAX_PROPOSALS)
      return by === '' || this.#isOver(counts, '', most)
    counts.set(by, hour)
    return ++hour.count > most
  }

  /** Writes a refusal into the ledger, at most 20 an hour for each name, and tells the log. */
  #refuse(by: string, order: string, refused: Refusal): Refusal {
    const { code, message } = refused
    this.#parts.emit({ order, by, result: code, detail: message })
    if (!this.#isOver(this.#refusals, by, MAX_REFUSALS) && !this.#parts.opened.ledger.isNearlyFull)
      void this.#write({
        kind: 'refused',
        by: by.slice(0, 64),
        order,
        code,
        message: message.slice(0, 1_000),
      })
    return refused
  }

  /** Writes an entry to disk, then counts the entry. Returns a refusal if the entry cannot be written. */
  async #write(entry: NewEntry): Promise<Refusal | undefined> {
    const dated = { ...entry, at: Math.floor(this.#now()) }
    try {
      await this.#parts.opened.ledger.add(dated)
      this.#book.add(dated)
      return undefined
    } catch (error) {
      const why = (error as Error).message
      this.#parts.emit({ order: entry.kind, by: 'gateway', result: 'not written', detail: why })
      return refusal('busy', `the ledger of approvals cannot be written: ${why}`, {
        repeat: 'later',
        retryAfterMs: 30_000,
      })
    }
  }
}

/** The form of a run's id. */
const RUN_ID = /^[0-9a-z]{6,12}-[0-9a-f]{8}$/

/** Returns why no agent may propose a spec, whoever approves; undefined when an agent may. */
function unfitIn({ name, faults }: Spec): string | undefined {
  if (RUN_ID.test(name)) return `the name ${name} looks like the id of a run: choose another name`
  // Counts of a fault would tell the agent the headers of other agents.
  const spying = faults.find(
    ({ match }) => (match as { readonly header?: unknown } | undefined)?.header !== undefined,
  )
  return spying && `the fault ${spying.name} matches headers, which only a person's experiment may`
}

/** Returns the digest of a fault, whatever its name and the tools that it matches. */
const faultDigest = ({ name: _, match: __, ...fault }: SpecFault) => digestOf(fault)

const ignore = () => undefined

const readOnly = ({ name }: Agent) =>
  refusal('not_allowed', `the credential of ${name} is read-only: gateway.controlMcp.tokens has tools: read`)

const killed = () =>
  refusal('killed', 'the kill switch is on: a person must lift the kill', {
    repeat: 'later',
    see: 'breakwater chaos lift',
  })

const inWords = ({ limit, allowed, asked }: Exceeded) => `${limit} allows ${allowed}, not ${asked}`
