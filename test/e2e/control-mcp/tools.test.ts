import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { main } from '../../support/main.ts'
import { cleanUp, newFolder } from '../support/gateway.ts'
import { traffic } from '../experiments/scene.ts'
import { Asker, insideSpec, opened, tokens } from './scene.ts'

after(cleanUp)

/** A call of each tool that succeeds on a gateway with traffic, a plan and a run. */
const usual: Readonly<Record<string, Record<string, unknown>>> = {
  get_status: {},
  list_servers: {},
  list_fault_kinds: {},
  list_plans: {},
  get_plan: { plan: 'drill' },
  estimate_blast_radius: { spec: insideSpec() },
  suggest_next: {},
  propose_run: { spec: insideSpec(), why: 'to see' },
  list_runs: {},
  query_runs: { question: 'verdicts' },
  list_incidents: {},
  stop_run: { all: true },
}

describe('the tools of the control MCP server', () => {
  test('clients of SDK 1 and 2 use every tool, and each answer fits into 8 KB', async () => {
    const scene = await opened()
    const agents = await traffic(scene.gateway)
    const asker = await Asker.open(scene.url)
    const old = new ClientV1({ name: 'old', version: '0' })
    const requestInit = { headers: { authorization: `Bearer ${tokens.writer}` } }
    await old.connect(new TransportV1(new URL(scene.url), { requestInit }))
    const { tools } = await old.listTools()
    assert.equal(tools.length, 18)
    for (const [name, given] of Object.entries(usual)) {
      if (name === 'get_plan') continue
      const told = await asker.call(name, given)
      assert.equal(told.error, undefined, `${name}: ${told.text}`)
      assert.ok(told.bytes <= 8_192, `${name} answers ${told.bytes} bytes`)
      // The old SDK checks the answer by the output schema.
      const byOld = await old.callTool({ name, arguments: given })
      assert.notEqual(byOld.isError, true, `${name}: ${JSON.stringify(byOld)}`)
    }
    await old.close()
    await agents.stop()
  })

  test('a finding of `breakwater search` is suggested with a spec that propose_run accepts, and is no plan', async () => {
    const tools = ['--tools', 'flaky/read', '--tasks', '80', '--fan-out', '4']
    const short = [
      '--slo',
      'tcsr=0.98',
      '--runs',
      '2',
      '--population',
      '12',
      '--generations',
      '1',
      '--seed',
      '1',
    ]
    const { stdout: report } = await promisify(execFile)(process.execPath, [
      main,
      'search',
      '--json',
      ...tools,
      ...short,
    ])
    const { findings } = JSON.parse(report) as { findings: unknown[] }
    assert.ok(findings.length > 0)
    const plans = await newFolder()
    await writeFile(join(plans, 'search.json'), report)
    await writeFile(join(plans, 'other.json'), report.replaceAll('flaky', 'elsewhere'))
    const scene = await opened({}, { plans })
    const agents = await traffic(scene.gateway)
    const asker = await Asker.open(scene.url)
    const listed = await asker.call('list_plans')
    assert.equal(listed.text, '0 plans.')
    assert.deepEqual(listed.data.rows, [])
    const told = await asker.call('suggest_next')
    assert.equal(told.error, undefined, told.text)
    assert.match(told.text, /^5 suggestions, the most pressing first\. Left out: \d+ findings? of searches/)
    const rows = told.data.rows as { kind: string; server: string; reason: string; spec: object }[]
    assert.deepEqual([rows[0]!.kind, rows[0]!.server], ['finding', 'flaky'])
    assert.match(rows[0]!.reason, /^a simulation found .* over the SLO's allowance \(tcsr ≥ 98 %\)/)
    assert.equal(rows.at(-1)!.kind, 'gap')
    const proposed = await asker.call('propose_run', { spec: rows[0]!.spec, why: 'to check the simulation' })
    assert.deepEqual(proposed.data.refusals, [], JSON.stringify(proposed))
    await agents.stop()
  })
})
