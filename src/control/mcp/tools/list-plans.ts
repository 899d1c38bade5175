import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { planKinds } from '../plans.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'

export const listPlans = defineTool({
  name: 'list_plans',
  title: 'Plans',
  description:
    'Lists the plans in the folder `gateway.controlMcp.plans`, with their last run: guarded experiments, and GameDays of several experiments.',
  access: 'read',
  input: z.strictObject({
    kind: z.enum(planKinds).optional().describe('Only plans of this kind.'),
    ...pageArguments,
  }),
  output: tableOf(z.looseObject({ plan: z.string(), kind: z.string() })),
  async run({ kind, ...page }, { operations: { plans, history, gameDays } }) {
    const runs = history.list()
    const lastOf = { guarded: lastRun, gameday: lastGameDay }
    function lastRun(name: string) {
      const last = runs.find(({ plan }) => plan === name)
      return last && { lastRun: last.run, lastState: last.state }
    }
    function lastGameDay(name: string) {
      const last = gameDays.list().findLast(({ plan }) => plan.name === name)
      return last && { lastGameDay: last.id, lastState: last.state }
    }
    const rows = (await plans.list())
      .filter((plan) => kind === undefined || plan.kind === kind)
      .map((plan) => ({
        plan: plan.name,
        kind: plan.kind,
        ...(plan.ok
          ? { ...(plan.title !== undefined && { title: plan.title.slice(0, 200) }) }
          : { problems: plan.problems.length }),
        ...lastOf[plan.kind](plan.name),
      }))
    return tableAnswer(rows, page, `${numbered(rows.length, 'plan')}.`)
  },
})
