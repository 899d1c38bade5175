import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { bounded, cutMark, defineTool } from '../tool.ts'
import { rowOf } from '../run-history.ts'

export const getStatus = defineTool({
  name: 'get_status',
  title: 'State of the gateway',
  description:
    'Returns environment, chaos state, active and waiting runs, the current GameDay, open incidents, your open proposals, and envelopes with the budget left. Call this first.',
  access: 'read',
  input: z.strictObject({}),
  output: z.object({
    environment: z.string(),
    gateway: z.string(),
    chaos: z.string(),
    mayWrite: z.boolean(),
    trustedKeys: z.int(),
    runs: z.array(z.looseObject({})),
    gameday: z.looseObject({}).optional(),
    incidents: z.array(z.looseObject({})),
    proposals: z.array(z.looseObject({})),
    envelopes: z.array(z.looseObject({})),
    cut: cutMark,
  }),
  run(_, { agent, operations: { chaos, guarded, incidents, agentRuns, gameDays } }) {
    const runs = guarded.list().filter(({ state }) => state === 'running' || state === 'pending_approval')
    const { state } = chaos.status()
    const { current } = gameDays
    return {
      ok: true,
      text: `Environment ${agentRuns.environment}; chaos is ${state}; active or waiting: ${numbered(runs.length, 'run')}.`,
      data: bounded({
        environment: agentRuns.environment,
        gateway: agentRuns.gateway,
        chaos: state,
        mayWrite: agent.mayWrite,
        trustedKeys: agentRuns.trust.size,
        runs: runs.slice(0, 8).map((run) => {
          const { run: id, plan, state, by } = rowOf(run)
          return { run: id, plan, state, by, phase: run.phase, stage: run.stage + 1 }
        }),
        ...(current !== undefined && {
          gameday: { gameday: current.id, plan: current.plan.name, state: current.state, by: current.by },
        }),
        incidents: incidents.open.slice(0, 10).map(({ id, server, reason }) => ({ id, server, reason })),
        proposals: agentRuns.proposals.list
          .filter(({ by }) => by === agent.name)
          .map((proposal) => ({ ...proposal, refusals: agentRuns.proposals.refusalsOf(proposal) }))
          .map(({ id, spec, expiresAt, envelope, approval, started, refusals }) => ({
            proposal: id,
            plan: spec.name,
            state:
              started !== undefined
                ? 'started'
                : approval !== undefined
                  ? 'approved'
                  : refusals.length > 0
                    ? 'needs_change'
                    : envelope === undefined
                      ? 'needs_approval'
                      : 'inside',
            expiresAt: new Date(expiresAt).toISOString(),
          })),
        envelopes: agentRuns.envelopes.list
          .filter(({ isWithdrawn, isExpired }) => !isWithdrawn && !isExpired)
          .slice(0, 8)
          .map(({ envelope, by, remaining, isEarly }) => ({
            id: envelope.id,
            state:
              remaining.aborts === 0
                ? 'suspended'
                : remaining.runs === 0 || remaining.today === 0
                  ? 'spent'
                  : isEarly
                    ? 'not yet in force'
                    : 'usable',
            by,
            expiresAt: envelope.expiresAt,
            servers: envelope.targets.slice(0, 16).map(({ server }) => server),
            faults: envelope.faults.slice(0, 16).map(({ type }) => type),
            ladder: envelope.ladder,
            remaining,
          })),
      }),
    }
  },
})
