import { z } from 'zod'
import { faults } from '../../../chaos/faults/index.ts'
import { refusal } from '../../../approval/refusal.ts'
import { suggest } from '../../../units/suggest.ts'
import { numbered } from '../../../units/numbered.ts'
import { bounded, defineTool, pageArguments, tableAnswer } from '../tool.ts'
import { faultDetail, faultRow } from '../fault-kinds.ts'

export const listFaultKinds = defineTool({
  name: 'list_fault_kinds',
  title: 'Kinds of faults',
  description:
    'Lists kinds of faults; with `server` only kinds that can work there, with `text` only kinds whose words match. With `type`: the JSON Schema of its fields and an example.',
  access: 'read',
  input: z.strictObject({
    server: z.string().max(64).optional(),
    text: z.string().max(64).optional(),
    type: z.string().max(64).optional(),
    ...pageArguments,
  }),
  output: z.looseObject({
    total: z.int().optional(),
    next: z.string().optional(),
    rows: z.array(z.looseObject({})).optional(),
    type: z.string().optional(),
  }),
  run({ server, text, type, ...page }, { operations: { live } }) {
    if (type !== undefined) {
      if (!Object.hasOwn(faults, type)) {
        const meant = suggest(type, Object.keys(faults))
        return refusal(
          'not_found',
          `there is no fault ${type}${meant === undefined ? '' : `; did you mean ${meant}?`}`,
        )
      }
      return { ok: true, text: `Fields of ${type}.`, data: bounded(faultDetail(type)) }
    }
    const target = server === undefined ? undefined : live.current.servers.get(server)
    if (server !== undefined && target === undefined)
      return refusal('not_found', `there is no server ${server}`, { see: 'list_servers' })
    const wanted = text?.toLowerCase()
    const rows = Object.keys(faults)
      .map(faultRow)
      .filter((row) => wanted === undefined || JSON.stringify(row).toLowerCase().includes(wanted))
      .filter(
        (row) =>
          target === undefined || row.transports.length === 0 || row.transports.includes(target.config.type),
      )
    return tableAnswer(rows, page, `${numbered(rows.length, 'kind')} of faults.`)
  },
})
