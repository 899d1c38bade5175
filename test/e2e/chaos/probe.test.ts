import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { closeClients } from '../support/sdk-client.ts'
import { lanes, Stage, type Act } from '../support/stage.ts'

const brief = { attemptTimeout: { timeout: 200 } }
const once = { maxInjections: 1 }
const http = ({ transport }: { transport: string }) => transport === 'http'
const acts: Act[] = [
  { tool: 'status', type: 'http.status', on: http },
  { tool: 'status_once', type: 'http.status', fault: once, on: http },
  { tool: 'status_404', type: 'http.status', fault: { status: 404, body: 'gone' }, on: http },
  {
    tool: 'status_429',
    type: 'http.status',
    fault: { ...once, status: 429, headers: { 'retry-after': '1' } },
    on: http,
  },
  { tool: 'agent_status', type: 'http.status', fault: { side: 'client', status: 503, body: 'busy' } },
  { tool: 'error', type: 'rpc.error', fault: { message: 'injected', data: { n: 1 } } },
  { tool: 'error_once', type: 'rpc.error', fault: { ...once, message: 'injected', data: { n: 1 } } },
  {
    tool: 'error_caller',
    type: 'rpc.error',
    fault: { ...once, code: -32602, message: 'injected', data: { n: 1 } },
  },
  { tool: 'truncate', type: 'rpc.malformed' },
  { tool: 'truncate_once', type: 'rpc.malformed', fault: once },
  { tool: 'bad_json', type: 'rpc.malformed', fault: { kind: 'bad_json' } },
  { tool: 'page', type: 'rpc.malformed', fault: { kind: 'wrong_content_type' }, on: http },
  { tool: 'wrong_id', type: 'rpc.wrong_id' },
  { tool: 'wrong_id_once', type: 'rpc.wrong_id', fault: once },
  { tool: 'duplicate', type: 'rpc.duplicate' },
  { tool: 'late', type: 'rpc.late', policies: brief, fault: { delay: 300 } },
  { tool: 'late_once', type: 'rpc.late', policies: brief, fault: { ...once, delay: 300 } },
  { tool: 'version', type: 'rpc.version_mismatch', on: ({ name }) => name !== 'stdio-legacy' },
  {
    tool: 'version_once',
    type: 'rpc.version_mismatch',
    fault: once,
    on: ({ name }) => name !== 'stdio-legacy',
  },
  { tool: 'header', type: 'rpc.header_mismatch', on: ({ name }) => name === 'http-modern' },
  { tool: 'header_once', type: 'rpc.header_mismatch', fault: once, on: ({ name }) => name === 'http-modern' },
  { tool: 'storm', type: 'retry.storm' },
  { tool: 'storm_3', type: 'retry.storm', fault: { failures: 3 } },
  { tool: 'fanout', type: 'fanout.amplify' },
  { tool: 'domain', type: 'failure_domain' },
  { tool: 'domain_once', type: 'failure_domain', fault: once },
  { tool: 'cold', type: 'cold_start', fault: { delay: 300 } },
  { tool: 'hol', type: 'hol.block', fault: { hold: 300 } },
  { tool: 'pool', type: 'pool.exhaust' },
  { tool: 'agent_error', type: 'rpc.error', fault: { side: 'client', message: 'injected', data: { n: 1 } } },
  { tool: 'agent_truncate', type: 'rpc.malformed', fault: { side: 'client' } },
  { tool: 'agent_bad_json', type: 'rpc.malformed', fault: { side: 'client', kind: 'bad_json' } },
  { tool: 'agent_page', type: 'rpc.malformed', fault: { side: 'client', kind: 'wrong_content_type' } },
  { tool: 'agent_wrong_id', type: 'rpc.wrong_id', fault: { side: 'client' } },
  { tool: 'agent_duplicate', type: 'rpc.duplicate', fault: { side: 'client' } },
  { tool: 'agent_late', type: 'rpc.late', policies: brief, fault: { side: 'client', delay: 300 } },
  { tool: 'agent_version', type: 'rpc.version_mismatch', fault: { side: 'client' } },
  { tool: 'agent_header', type: 'rpc.header_mismatch', fault: { side: 'client' } },
  { tool: 'agent_pool', type: 'pool.exhaust', fault: { side: 'client' } },
  { tool: 'agent_cold', type: 'cold_start', fault: { side: 'client', delay: 300 } },
  { tool: 'kill', type: 'proc.kill', fault: once, on: ({ transport }) => transport === 'stdio' },
  {
    tool: 'write_kill',
    type: 'proc.kill',
    fault: { ...once, allowWrites: true },
    on: ({ transport }) => transport === 'stdio',
  },
  {
    tool: 'kill_hard',
    type: 'proc.kill',
    fault: { signal: 'KILL', restartAfter: 400 },
    on: ({ transport }) => transport === 'stdio',
  },
]
let stage: Stage
before(async () => {
  stage = await Stage.start(acts)
})
after(async () => {
  await closeClients()
  await cleanUp()
})
process.on('exit', () => {
  try {
    console.log(stage.gateway.program.lines.slice(-15).join('\n'))
  } catch {}
})
test('x', async () => {
  for (const act of acts)
    for (const lane of lanes) {
      if (act.on && !act.on(lane)) continue
      const seen = await stage.call(lane, act.tool, 1000)
      console.log(
        act.tool,
        lane.name,
        JSON.stringify({
          ...seen,
          tookMs: Math.round(seen.tookMs),
          data: seen.data && {
            n: seen.data.n,
            attempts: seen.data.attempts,
            sent: seen.data.sent,
            by: seen.data.by,
          },
        }),
        'runs',
        await stage.runs(lane, act.tool),
        JSON.stringify(await stage.attempts(lane, act.tool)),
        JSON.stringify(await stage.fates(lane, act)),
      )
    }
  for (const line of stage.gateway.log)
    if (Number(line.level) >= 40 && !String(line.msg).includes('sent'))
      console.log(JSON.stringify(line).slice(0, 300))
})
