import { z } from 'zod'
import type { Agent } from '../../../approval/agent.ts'
import { refusal } from '../../../approval/refusal.ts'
import { specOf } from '../../../gamedays/plan.ts'
import { nextTurn } from '../../../mesh/clock.ts'
import { numbered } from '../../../units/numbered.ts'
import { planKinds, type ReadPlan } from '../plans.ts'
import {
  type Answer,
  bounded,
  bytesOf,
  cursor,
  defineTool,
  type Operations,
  pageOf,
  pageShape,
} from '../tool.ts'
import { readSpec } from '../read-spec.ts'

/** Largest list of findings in bytes, so that room is left for the text of the plan. */
const MAX_FINDINGS_BYTES = 4_000

/** The same for a GameDay, whose experiments need room as well. */
const MAX_GAME_DAY_FINDINGS_BYTES = 2_000

export const getPlan = defineTool({
  name: 'get_plan',
  title: 'A plan',
  description:
    'Returns the text of a plan, whether the gateway could run the plan now, and its refusals and doubts. For each experiment of a GameDay, `needs` says what its run would need now, as in propose_run.',
  access: 'read',
  input: z.strictObject({
    plan: z.string().min(1).max(64),
    kind: z.enum(planKinds).optional().describe('For a name that plans of both kinds have.'),
    cursor,
  }),
  output: z.looseObject({
    plan: z.string(),
    kind: z.enum(planKinds),
    findings: z.array(z.string()),
    shape: z.string().optional(),
    experiments: z.array(z.looseObject({ experiment: z.string(), needs: z.string() })).optional(),
    ...pageShape,
  }),
  async run({ plan: name, kind, cursor }, { operations, agent }) {
    const { plans } = operations
    const plan = kind === undefined ? await plans.find(name) : await plans.find(name, kind)
    if (plan === undefined) return refusal('not_found', `there is no plan ${name}`, { see: 'list_plans' })
    if (!plan.ok)
      return {
        ok: true,
        text: `${name} cannot be used.`,
        data: { plan: name, kind: plan.kind, findings: findingsOf(plan.problems), ...pageOf('', undefined) },
      }
    if (plan.kind === 'gameday') return gameDayAnswer(plan, cursor, agent, operations)
    const read = await readSpec({ plan: name }, operations)
    if (!read.ok) return read
    const { refusals, doubts, shape } = operations.guarded.plan(read.spec, {
      by: agent.name,
      approvedBy: undefined,
      firstStage: 0,
    })
    const findings = findingsOf([...refusals, ...doubts])
    const used = bytesOf(findings) + 200
    return {
      ok: true,
      text: verdictOn(name, refusals),
      data: { plan: name, kind: plan.kind, shape, findings, ...pageOf(plan.text, cursor, used) },
    }
  },
})

const verdictOn = (name: string, refusals: readonly string[]): string =>
  refusals.length === 0
    ? `${name} could run now.`
    : `${name} cannot run now: ${numbered(refusals.length, 'refusal')}.`

async function gameDayAnswer(
  { name, text, plan }: Extract<ReadPlan, { readonly kind: 'gameday'; readonly ok: true }>,
  cursor: string | undefined,
  agent: Agent,
  { gameDays, agentRuns }: Operations,
): Promise<Answer> {
  const steps = []
  for (const step of plan.experiments) {
    const spec = specOf(plan, step)
    const { needs, plan: seen } = agentRuns.proposals.preview(agent.name, spec)
    steps.push({ name: spec.name, after: step.after, needs, seen })
    // The check of an experiment takes milliseconds with many tools, so calls get their turn between two checks.
    await nextTurn()
  }
  const refusals = [
    ...gameDays.refusals(plan),
    ...steps.flatMap(({ name, seen }) => seen.refusals.map((why) => `${name}: ${why}`)),
  ]
  const doubts = steps.flatMap(({ name, seen }) => seen.doubts.map((why) => `${name}: ${why}`))
  const data = {
    plan: name,
    kind: 'gameday',
    findings: findingsOf([...refusals, ...doubts], MAX_GAME_DAY_FINDINGS_BYTES),
    experiments: steps.map(({ name, after, needs, seen: { lengthMs } }) => ({
      experiment: name,
      afterMs: after,
      lengthMs,
      needs,
    })),
  }
  return {
    ok: true,
    text: verdictOn(name, refusals),
    data: { ...data, ...pageOf(text, cursor, bytesOf(data)) },
  }
}

function findingsOf(texts: readonly string[], most = MAX_FINDINGS_BYTES): readonly string[] {
  const findings = texts.slice(0, 10).map((text) => text.slice(0, 300))
  return bounded({ findings }, most).findings
}
