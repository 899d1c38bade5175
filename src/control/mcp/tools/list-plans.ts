import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'

export const listPlans = defineTool({
  name: 'list_plans',
  title: 'Plans',
  description: 'Lists the experiments in the folder `gateway.controlMcp.plans`, with their last run.',
  access: 'read',
  input: z.strictObject({ kind: z.enum(['experiment']).default('experiment'), ...pageArguments }),
  output: tableOf(z.looseObject({ plan: z.string() })),
  async run(page, { operations: { plans, history } }) {
    const runs = history.list()
    const rows = (await plans.list()).map((plan) => {
      const last = runs.find((run) => run.plan === plan.name)
      return {
        plan: plan.name,
        kind: 'experiment',
        ...(plan.ok
          ? { ...(plan.title !== undefined && { title: plan.title.slice(0, 200) }) }
          : { problems: plan.problems.length }),
        ...(last !== undefined && { lastRun: last.run, lastState: last.state }),
      }
    })
    return tableAnswer(rows, page, `${numbered(rows.length, 'plan')}.`)
  },
})
