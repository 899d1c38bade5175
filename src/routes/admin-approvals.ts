import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import type { AgentRuns } from '../approval/agent-runs.ts'
import { signedApprovalSchema, signedLiftSchema } from '../approval/approval.ts'
import { signedEnvelopeSchema } from '../approval/envelope.ts'
import { withoutSecrets } from '../chaos/plan/schema.ts'
import type { Proposal } from '../approval/proposals.ts'
import type { Refusal } from '../approval/refusal.ts'
import { malformed, read } from './answers.ts'

export interface AdminApprovalsParts {
  readonly agentRuns: AgentRuns
  /** Names of the agents that have a token. */
  readonly agents: readonly string[]
  /** Each server with its identity, its tools and their effects, for the draft of an envelope. */
  readonly targets: () => readonly {
    readonly server: string
    readonly identity: string
    readonly tools: readonly { readonly tool: string; readonly effect: string }[]
  }[]
}

interface ById {
  readonly Params: { readonly id: string }
}

const withdrawal = z.strictObject({ by: z.string().min(1).max(128).default('admin API') })

/**
 * Registers the routes for persons: envelopes under `/admin/envelopes`, proposals of agents under `/admin/proposals`.
 * The control token opens the routes; only a signature by a trusted key changes an envelope or approves.
 */
export function registerAdminApprovals(
  app: FastifyInstance,
  { agentRuns, agents, targets }: AdminApprovalsParts,
): void {
  const { envelopes, proposals } = agentRuns

  app.get('/admin/envelopes', () => ({
    gateway: agentRuns.gateway,
    environment: agentRuns.environment,
    trust: agentRuns.trust.fingerprint,
    agents,
    targets: targets(),
    envelopes: envelopes.list.map(
      ({ envelope, by, remaining, isWithdrawn, isExpired, isEarly, aborts, spentAt }) => ({
        envelope,
        by,
        remaining,
        runs: spentAt.length,
        aborts,
        state: isWithdrawn
          ? 'withdrawn'
          : isExpired
            ? 'expired'
            : remaining.aborts === 0
              ? 'suspended'
              : isEarly
                ? 'not yet in force'
                : 'in force',
      }),
    ),
  }))

  app.post('/admin/envelopes', async ({ body }, reply) => {
    const wanted = read(signedEnvelopeSchema, body ?? {}, 'the envelope')
    if (!wanted.ok) return malformed(reply, wanted)
    const installed = await envelopes.install(wanted.value)
    return installed.ok
      ? reply.code(201).send({ installed: installed.envelope.id })
      : refused(reply, installed)
  })

  app.post('/admin/envelopes/lift', async ({ body }, reply) => {
    const wanted = read(signedLiftSchema, body ?? {}, 'the order')
    if (!wanted.ok) return malformed(reply, wanted)
    const lifted = await envelopes.lift(wanted.value)
    return lifted.ok ? reply.send({ lifted: wanted.value.lift.envelope }) : refused(reply, lifted)
  })

  // Withdrawing only takes rights away, so the control token is enough.
  app.post<ById>('/admin/envelopes/:id/withdraw', async ({ params, body }, reply) => {
    const wanted = read(withdrawal, body ?? {}, 'the order')
    if (!wanted.ok) return malformed(reply, wanted)
    const withdrawn = await envelopes.withdraw(params.id, wanted.value.by)
    return withdrawn.ok ? reply.send({ withdrawn: params.id }) : refused(reply, withdrawn)
  })

  app.get('/admin/proposals', () => ({
    proposals: proposals.list.map((one) => inShort(one, proposals.refusalsOf(one))),
  }))

  app.get<ById>('/admin/proposals/:id', ({ params: { id } }, reply) => {
    const proposal = proposals.get(id)
    if (proposal === undefined)
      return reply
        .code(404)
        .send({ error: `there is no open proposal ${id.slice(0, 64)}: proposals end after an hour` })
    const { spec, firstStage, hit, sealed, plan, exceeded } = proposal
    return {
      ...inShort(proposal, proposals.refusalsOf(proposal)),
      spec: withoutSecrets(spec),
      hit,
      sealed,
      doubts: plan.doubts,
      exceeded,
      /** The document to sign. */
      approval: agentRuns.approvals.documentOf(id, proposal, firstStage),
    }
  })

  app.post('/admin/proposals/approve', async ({ body }, reply) => {
    const wanted = read(signedApprovalSchema, body ?? {}, 'the approval')
    if (!wanted.ok) return malformed(reply, wanted)
    const approved = await proposals.approve(wanted.value)
    return approved.ok
      ? reply.send(inShort(approved.proposal, proposals.refusalsOf(approved.proposal)))
      : refused(reply, approved)
  })
}

const statuses: Partial<Record<Refusal['code'], number>> = {
  not_found: 404,
  not_allowed: 403,
  invalid: 400,
  busy: 503,
}

/** Answers with a refusal: nothing was injected. */
export const refused = (reply: FastifyReply, { code, message, repeat, see }: Refusal) =>
  reply.code(statuses[code] ?? 409).send({ error: message, code, began: false, repeat, see })

/** Returns a proposal for lists. `refusals`: why the run could not begin at the moment. */
const inShort = (
  {
    id,
    by,
    spec,
    why,
    firstStage,
    envelope,
    expiresAt,
    approval,
    started,
    planHash,
    groundHash,
    targetsHash,
  }: Proposal,
  refusals: readonly string[],
) => ({
  proposal: id,
  by,
  plan: spec.name,
  why,
  firstStage: firstStage + 1,
  state:
    started !== undefined
      ? 'started'
      : approval !== undefined
        ? 'approved'
        : refusals.length > 0
          ? 'cannot run'
          : envelope !== undefined
            ? 'inside an envelope'
            : 'needs approval',
  refusals,
  envelope,
  approvedBy: approval?.signedBy,
  expiresAt: new Date(expiresAt).toISOString(),
  planHash,
  groundHash,
  targetsHash,
})
