import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'
import { quoted } from '../untrusted.ts'

const instant = z.iso.datetime().optional()

export const listIncidents = defineTool({
  name: 'list_incidents',
  title: 'Incidents',
  description:
    'Lists incidents of servers, newest first: reason, times, and how long detection and recovery took.',
  access: 'read',
  input: z.strictObject({
    server: z.string().max(64).optional(),
    state: z.enum(['open', 'closed']).optional(),
    from: instant.describe('Only incidents that began at or after this time.'),
    to: instant.describe('Only incidents that began before this time.'),
    ...pageArguments,
  }),
  output: tableOf(z.looseObject({ id: z.string(), server: z.string(), reason: z.string() })),
  run({ server, state, from, to, ...page }, { operations: { incidents } }) {
    const rows = incidents
      .list()
      .filter(
        (one) =>
          (server === undefined || one.server === server) &&
          (state === undefined || (one.endedAt === undefined) === (state === 'open')) &&
          (from === undefined || one.startedAt >= Date.parse(from)) &&
          (to === undefined || one.startedAt < Date.parse(to)),
      )
      .map(
        ({
          id,
          server,
          reason,
          startedAt,
          detectedAt,
          endedAt,
          detectedAfterMs,
          recoveredAfterMs,
          end,
          message,
        }) => ({
          id,
          server,
          reason,
          startedAt: new Date(startedAt).toISOString(),
          detectedAt: new Date(detectedAt).toISOString(),
          ...(endedAt !== undefined && { endedAt: new Date(endedAt).toISOString() }),
          ...(detectedAfterMs !== undefined && { detectedAfterMs }),
          ...(recoveredAfterMs !== undefined && { recoveredAfterMs }),
          ...(end !== undefined && { end }),
          untrusted: { message: quoted(message) },
        }),
      )
    return tableAnswer(rows, page, `${numbered(rows.length, 'incident')}.`)
  },
})
