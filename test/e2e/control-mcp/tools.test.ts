import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { cleanUp } from '../support/gateway.ts'
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
    assert.equal(tools.length, 15)
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
})
