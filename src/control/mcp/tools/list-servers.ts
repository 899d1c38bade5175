import { z } from 'zod'
import { metStates } from '../../orders.ts'
import { glob } from '../../../mesh/match.ts'
import { numbered } from '../../../units/numbered.ts'
import { defineTool, pageArguments, tableAnswer, tableOf } from '../tool.ts'

interface Snapshot {
  snapshot(): { readonly state?: string }
}

export const listServers = defineTool({
  name: 'list_servers',
  title: 'Servers',
  description:
    'Lists servers with state, era, number of tools, protection, open breakers, recent calls per minute and p95, and the latency baseline of probes. `protected` servers are never targets.',
  access: 'read',
  input: z.strictObject({
    filter: z.string().max(64).optional().describe('Glob over server names, such as `search*`.'),
    state: z.enum(['up', 'down', 'starting']).optional(),
    ...pageArguments,
  }),
  output: tableOf(z.looseObject({ server: z.string(), state: z.string(), tools: z.int() })),
  run({ filter = '*', state, ...page }, { operations: { live, state: store, traffic } }) {
    const isMeant = glob(filter)
    const parts = { live, state: store }
    const breakers = metStates('breaker', parts) as readonly (readonly [
      { server: string; tool?: string },
      Snapshot,
    ])[]
    const rows = [...live.current.servers.values()]
      .filter((server) => isMeant(server.name) && (state === undefined || server.state === state))
      .map((server) => {
        const recent = traffic.of((name) => name === server.name)
        const open = breakers.filter(
          ([key, one]) => key.server === server.name && one.snapshot?.().state === 'open',
        )
        const pace = server.config.health === false ? [] : server.health.paces
        const [call] = pace.map(({ baselineMs }) => baselineMs)
        return {
          server: server.name,
          state: server.state,
          type: server.config.type,
          era: server.eras.flatMap((eras) => Object.keys(eras)).join('+') || 'unknown',
          tools: server.entries('tools').length,
          protected: server.protected,
          openBreakers: open.length,
          callsPerMinute: recent?.perMinute ?? 'unknown',
          p95Ms: recent?.figures.p95 ?? 'unknown',
          baselineMs: call ?? 'unknown',
        }
      })
    return tableAnswer(
      rows,
      page,
      `Matching: ${numbered(rows.length, 'server')}. Figures are of the last 15 minutes.`,
    )
  },
})
