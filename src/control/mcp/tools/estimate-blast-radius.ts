import { z } from 'zod'
import { numbered } from '../../../units/numbered.ts'
import { bounded, defineTool } from '../tool.ts'
import { estimateOf } from '../estimate.ts'
import { readSpec } from '../read-spec.ts'

export const estimateBlastRadius = defineTool({
  name: 'estimate_blast_radius',
  title: 'Estimate of the blast radius',
  description:
    'Estimates from the traffic of the last 15 minutes: hits per minute, tasks, tenants, tools that write, servers in the same process or pool, and the error ratio if each fault surfaces as an error. Without traffic a figure is `unknown`, never 0.',
  access: 'read',
  input: z.strictObject({
    plan: z.string().max(64).optional().describe('Name of a plan from list_plans.'),
    spec: z.record(z.string(), z.unknown()).optional().describe('A whole experiment.'),
  }),
  output: z.looseObject({ basis: z.looseObject({ calls: z.int() }), unknown: z.array(z.string()) }),
  async run({ plan, spec: given }, { operations }) {
    const read = await readSpec({ plan, spec: given }, operations)
    if (!read.ok) return read
    const data = estimateOf(read.spec, operations)
    const hits =
      data.hitsPerMinute === 'unknown' ? 'an unknown number of calls' : numbered(data.hitsPerMinute, 'call')
    return { ok: true, text: `The last stage would hit ${hits} a minute.`, data: bounded(data) }
  },
})
