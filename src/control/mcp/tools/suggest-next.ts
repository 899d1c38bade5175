import { z } from 'zod'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'
import { numbered } from '../../../units/numbered.ts'
import { findingsIn } from '../findings.ts'
import { gapsIn, precursorsIn } from '../next-target.ts'

export const suggestNext = defineTool({
  name: 'suggest_next',
  title: 'Next target',
  description:
    'Suggests what to test next: a precursor (a signal that moves now and moved before earlier incidents), a finding (faults that slightly violate an objective, from a report of `breakwater search` in the folder of plans), or a gap (a server with traffic and no proven run of a fault family in 90 days). Each has a reason and a ready spec for propose_run.',
  access: 'read',
  input: z.strictObject({
    server: z.string().max(64).optional(),
    limit: z.int().min(1).max(20).default(5),
    ...pageArguments,
  }),
  output: tableOf(
    z.looseObject({ kind: z.enum(['precursor', 'finding', 'gap']), server: z.string(), reason: z.string() }),
  ),
  async run({ server, limit, ...page }, { operations }) {
    const { suggestions, unfit } = await findingsIn(operations, server)
    const rows = [...precursorsIn(operations, server), ...suggestions, ...gapsIn(operations, server)].slice(
      0,
      limit,
    )
    const text =
      rows.length === 0
        ? 'Nothing to suggest: there is no precursor, finding or gap.'
        : `${numbered(rows.length, 'suggestion')}, the most pressing first.`
    const left =
      unfit === 0
        ? ''
        : ` Left out: ${numbered(unfit, 'finding')} of searches that no experiment here can have.`
    return tableAnswer(rows, page, `${text}${left}`)
  },
})
