import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'

const instant = z.iso.datetime().optional()

export const listRuns = defineTool({
  name: 'list_runs',
  title: 'Runs',
  description:
    'Lists guarded runs, newest first: plan, state, author, approver and how the approver was proved, servers, faults, injected faults.',
  access: 'read',
  input: z.strictObject({
    plan: z.string().max(64).optional().describe('Only runs of this plan.'),
    server: z.string().max(64).optional(),
    verdict: z
      .enum([
        'completed',
        'deviated',
        'aborted',
        'failed',
        'invalid',
        'inconclusive',
        'running',
        'pending_approval',
      ])
      .optional(),
    from: instant.describe('Only runs requested at or after this time.'),
    to: instant.describe('Only runs requested before this time.'),
    ...pageArguments,
  }),
  output: tableOf(z.looseObject({ run: z.string(), plan: z.string(), state: z.string() })),
  run({ plan, server, verdict, from, to, ...page }, { operations: { history } }) {
    const rows = history
      .list()
      .filter(
        (row) =>
          (plan === undefined || row.plan === plan) &&
          (server === undefined || row.servers.includes(server)) &&
          (verdict === undefined || row.state === verdict) &&
          (from === undefined || Date.parse(row.requestedAt) >= Date.parse(from)) &&
          (to === undefined || Date.parse(row.requestedAt) < Date.parse(to)),
      )
    return tableAnswer(rows, page, `${numbered(rows.length, 'run')}.`)
  },
})
