import { z } from 'zod'
import { wilsonInterval } from '../../../experiments/statistics/proportions.ts'
import { numbered } from '../../../units/numbered.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'

const questions = ['verdicts', 'recovery', 'estimates', 'coverage'] as const

export const queryRuns = defineTool({
  name: 'query_runs',
  title: 'Questions about runs',
  description:
    'Answers a question over the last runs: `verdicts` (states by plan, with the 95 % interval of the share completed), `recovery` (times against the promised limit), `estimates` (how often the authors were right), `coverage` (last completed run by server and fault).',
  access: 'read',
  input: z.strictObject({
    question: z.enum(questions),
    plan: z.string().max(64).optional(),
    last: z.int().min(1).max(1_000).default(100).describe('Most runs, the newest.'),
    ...pageArguments,
  }),
  output: tableOf(z.looseObject({})),
  run({ question, plan, last, ...page }, { operations: { history } }) {
    const runs = history
      .list()
      .filter((row) => (plan === undefined || row.plan === plan) && row.endedAt !== undefined)
      .slice(0, last)
    const plans = [...new Set(runs.map((run) => run.plan))]
    const of = (name: string) => runs.filter((run) => run.plan === name)
    const text = `Over ${numbered(runs.length, 'ended run')}.`
    switch (question) {
      case 'verdicts':
        return tableAnswer(
          plans.map((name) => {
            const own = of(name)
            const completed = own.filter(({ state }) => state === 'completed').length
            const states = Object.fromEntries(
              [...new Set(own.map(({ state }) => state))].map((state) => [
                state,
                own.filter((run) => run.state === state).length,
              ]),
            )
            const { low, high } = wilsonInterval({ successes: completed, units: own.length }, 0.05)
            return {
              plan: name,
              runs: own.length,
              states,
              completed: { share: completed / own.length, low, high },
            }
          }),
          page,
          text,
        )
      case 'recovery':
        return tableAnswer(
          runs.map(({ run, plan, recoveredAfterMs, recoveryLimitMs, state }) => ({
            run,
            plan,
            state,
            recoveredAfterMs: recoveredAfterMs ?? 'unknown',
            limitMs: recoveryLimitMs ?? 'unknown',
          })),
          page,
          text,
        )
      case 'estimates':
        return tableAnswer(
          plans.map((name) => {
            const own = of(name).filter(({ estimates = 0 }) => estimates > 0)
            const all = own.reduce((sum, { estimates = 0 }) => sum + estimates, 0)
            const right = own.reduce((sum, { estimatesRight = 0 }) => sum + estimatesRight, 0)
            return { plan: name, runs: own.length, estimates: all, right }
          }),
          page,
          text,
        )
      case 'coverage': {
        const pairs = new Map<
          string,
          { server: string; fault: string; runs: number; lastCompleted?: string }
        >()
        for (const { servers, faults, state, requestedAt } of runs)
          for (const server of servers)
            for (const fault of faults) {
              const key = `${server} ${fault}`
              const known = pairs.get(key) ?? { server, fault, runs: 0 }
              known.runs++
              if (state === 'completed') known.lastCompleted ??= requestedAt
              pairs.set(key, known)
            }
        return tableAnswer([...pairs.values()], page, text)
      }
    }
  },
})
