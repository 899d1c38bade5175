import { z } from 'zod'
import { cursor, defineTool, tableAnswer, tableOf } from '../tool.ts'
import { gapsIn, precursorsIn } from '../next-target.ts'

export const suggestNext = defineTool({
  name: 'suggest_next',
  title: 'Next target',
  description:
    'Suggests what to test next: a gap (a server with traffic and no proven run of a fault family in 90 days), or a precursor (a signal that moves now and moved before earlier incidents). Each has a reason and a ready spec for propose_run.',
  access: 'read',
  input: z.strictObject({
    server: z.string().max(64).optional(),
    limit: z.int().min(1).max(20).default(5),
    cursor,
  }),
  output: tableOf(
    z.looseObject({ kind: z.enum(['gap', 'precursor']), server: z.string(), reason: z.string() }),
  ),
  run({ server, limit, cursor }, { operations }) {
    const rows = [...precursorsIn(operations, server), ...gapsIn(operations, server)].slice(0, limit)
    return tableAnswer(
      rows,
      cursor,
      rows.length === 0
        ? 'Nothing to suggest: no tested kind of server has traffic.'
        : `${rows.length} suggestions, the most pressing first.`,
    )
  },
})
