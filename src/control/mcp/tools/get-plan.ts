import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import { cursor, defineTool, pageOf, pageShape } from '../tool.ts'
import { readSpec } from '../read-spec.ts'

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
        data: {
          plan: name,
          findings: plan.problems.slice(0, 10).map((text) => text.slice(0, 300)),
          ...pageOf('', undefined),
        },
      }
    const read = await readSpec({ plan: name }, operations)
    if (!read.ok) return read
    const { refusals, doubts, shape } = operations.guarded.plan(read.spec, {
      by: agent.name,
      approvedBy: undefined,
      firstStage: 0,
    })
    const findings = [...refusals, ...doubts].slice(0, 10).map((text) => text.slice(0, 300))
    const used = Buffer.byteLength(JSON.stringify(findings)) + 200
    return {
      ok: true,
      text:
        refusals.length === 0
          ? `${name} could run now.`
          : `${name} cannot run now: ${refusals.length} refusals.`,
      data: { plan: name, shape, findings, ...pageOf(plan.text, cursor, used) },
    }
  },
})
