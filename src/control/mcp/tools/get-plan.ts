import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import { numbered } from '../../../units/numbered.ts'
import { bounded, bytesOf, cursor, defineTool, pageOf, pageShape } from '../tool.ts'
import { readSpec } from '../read-spec.ts'

/** Largest list of findings in bytes, so that room is left for the text of the plan. */
const MAX_FINDINGS_BYTES = 4_000

export const getPlan = defineTool({
  name: 'get_plan',
  title: 'A plan',
  description:
    'Returns the text of a plan, whether the gateway could run the plan now, and its refusals and doubts.',
  access: 'read',
  input: z.strictObject({ plan: z.string().min(1).max(64), cursor }),
  output: z.looseObject({
    plan: z.string(),
    findings: z.array(z.string()),
    shape: z.string().optional(),
    ...pageShape,
  }),
  async run({ plan: name, cursor }, { operations, agent }) {
    const plan = await operations.plans.find(name)
    if (plan === undefined) return refusal('not_found', `there is no plan ${name}`, { see: 'list_plans' })
    if (!plan.ok)
      return {
        ok: true,
        text: `${name} cannot be used.`,
        data: { plan: name, findings: findingsOf(plan.problems), ...pageOf('', undefined) },
      }
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
      text:
        refusals.length === 0
          ? `${name} could run now.`
          : `${name} cannot run now: ${numbered(refusals.length, 'refusal')}.`,
      data: { plan: name, shape, findings, ...pageOf(plan.text, cursor, used) },
    }
  },
})

function findingsOf(texts: readonly string[]): readonly string[] {
  const findings = texts.slice(0, 10).map((text) => text.slice(0, 300))
  return bounded({ findings }, MAX_FINDINGS_BYTES).findings
}
