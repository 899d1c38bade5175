import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { closeClients } from '../support/sdk-client.ts'
import { lanes, Stage, type Act } from '../support/stage.ts'

const brief = { attemptTimeout: { timeout: 200 } }
const once = { maxInjections: 1 }
const acts: Act[] = [
  { tool: 'refused', type: 'conn.refused' },
  { tool: 'refused_once', type: 'conn.refused', fault: once },
  { tool: 'reset', type: 'conn.reset' },
  { tool: 'reset_once', type: 'conn.reset', fault: once },
  { tool: 'reset_bytes', type: 'conn.reset', fault: {...once, at: { afterBytes: 20 }} },
  { tool: 'write_reset', type: 'conn.reset', fault: { allowWrites: true } },
  { tool: 'silent', type: 'conn.half_open', policies: brief },
  { tool: 'silent_once', type: 'conn.half_open', fault: once, policies: brief },
  { tool: 'slow', type: 'conn.latency', fault: { distribution: { kind: 'fixed', delay: 300 } } },
  { tool: 'slow_hedged', type: 'conn.latency', fault: { ...once, distribution: { kind: 'fixed', delay: '60s' } }, policies: { hedge: { after: 50 } } },
  { tool: 'thin', type: 'conn.bandwidth', fault: { kibPerSecond: 0.5 } },
  { tool: 'thinner', type: 'conn.bandwidth', fault: {...once, kibPerSecond: 0.01 }, policies: brief },
  { tool: 'drip', type: 'conn.slow_drip', fault: { chunk: 16, gap: 30 } },
  { tool: 'drip_once', type: 'conn.slow_drip', fault: { ...once, chunk: 1, gap: 100 }, policies: brief },
  { tool: 'agent_refused', type: 'conn.refused', fault: { side: 'client' } },
  { tool: 'agent_reset', type: 'conn.reset', fault: { side: 'client' } },
  { tool: 'agent_silent', type: 'conn.half_open', fault: { side: 'client', hold: 300 } },
  { tool: 'agent_slow', type: 'conn.latency', fault: { side: 'client', distribution: { kind: 'fixed', delay: 300 } }, policies: brief },
  { tool: 'agent_thin', type: 'conn.bandwidth', fault: { side: 'client', kibPerSecond: 0.5 } },
  { tool: 'agent_drip', type: 'conn.slow_drip', fault: { side: 'client', chunk: 16, gap: 30 } },
  { tool: 'agent_flap', type: 'conn.flap', fault: { side: 'client', up: 1, down: 60_000 } },
]
let stage: Stage
before(async () => { stage = await Stage.start(acts) })
after(async () => { await closeClients(); await cleanUp() })
test('x', async () => {
  for (const act of acts) for (const lane of lanes) {
    const seen = await stage.call(lane, act.tool, 3000)
    console.log(act.tool, lane.name, JSON.stringify({...seen, data: { attempts: seen.data.attempts, sent: seen.data.sent, by: seen.data.by}}), 'runs', await stage.runs(lane, act.tool), JSON.stringify(await stage.attempts(lane, act.tool)), JSON.stringify(await stage.fates(lane, act)))
  }
})
