import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, Stage, type Lane } from '../support/stage.ts'

const client = { side: 'client' }
const ofLegacyEra = ({ era }: Lane) => era === 'legacy'
const ofModernEra = ({ era }: Lane) => era === 'modern'
const ran = { runs: 1, attempts: { returned: 1 } }
const neverSent = { runs: 0, attempts: {} }

/** Above all policies: what a client of the SDK makes of replies that are none, whatever the server is like. */
const scenes: readonly Scene[] = [
  {
    title: 'the agent gets the error under its own id, and the server gets nothing',
    tool: 'error',
    type: 'rpc.error',
    fault: { ...client, message: 'injected' },
    sees: { code: -32603, message: /injected$/ },
    ...neverSent,
    fates: { surfaced: 1 },
  },
  {
    title: 'the agent gets half a reply, also where the server streams',
    tool: 'truncate',
    type: 'rpc.malformed',
    fault: client,
    sees: { message: /JSON/ },
    ...ran,
    fates: { surfaced: 1 },
  },
  {
    title: 'the agent gets a reply that is no JSON',
    tool: 'bad_json',
    type: 'rpc.malformed',
    fault: { ...client, kind: 'bad_json' },
    sees: { message: /JSON/ },
    ...ran,
    fates: { surfaced: 1 },
  },
  {
    title: 'the agent gets a web page',
    tool: 'page',
    type: 'rpc.malformed',
    fault: { ...client, kind: 'wrong_content_type' },
    sees: { message: /Unexpected content type: text\/html/ },
    ...ran,
    fates: { surfaced: 1 },
  },
  {
    title: "another request's reply is no answer to the agent, which gives up in time",
    tool: 'wrong_id',
    type: 'rpc.wrong_id',
    fault: client,
    sees: { message: /timed out/ },
    ...ran,
    fates: { surfaced: 1 },
    patienceMs: 300,
  },
  {
    title: 'the agent takes the first of two replies',
    tool: 'duplicate',
    type: 'rpc.duplicate',
    fault: client,
    ...ran,
    fates: { masked: 1 },
  },
  {
    title: 'the agent waits for a late reply, which no policy sees',
    tool: 'late',
    type: 'rpc.late',
    fault: { ...client, delay: 1_300 },
    policies: { attemptTimeout: { timeout: 1_200 }, retry: false },
    ...ran,
    fates: { delayed: 1 },
    takesMs: 1_300,
  },
  {
    title: 'an agent of the legacy era is refused its version with HTTP 400',
    tool: 'version_legacy',
    type: 'rpc.version_mismatch',
    fault: client,
    on: ofLegacyEra,
    sees: { code: 400, message: /Unsupported protocol version/ },
    ...neverSent,
    fates: { surfaced: 1 },
  },
  {
    title: 'an agent of the modern era is refused its version with a code of its own',
    tool: 'version_modern',
    type: 'rpc.version_mismatch',
    fault: client,
    on: ofModernEra,
    sees: { code: -32022 },
    ...neverSent,
    fates: { surfaced: 1 },
  },
  {
    title: 'an agent of the modern era whose headers are refused once fetches the list anew and calls again',
    tool: 'header',
    type: 'rpc.header_mismatch',
    fault: { ...client, maxInjections: 1 },
    on: ofModernEra,
    ...ran,
    fates: { surfaced: 1 },
  },
  {
    title: 'an agent of the legacy era has no such headers, and no fault is counted',
    tool: 'header_legacy',
    type: 'rpc.header_mismatch',
    fault: client,
    on: ofLegacyEra,
    ...ran,
    fates: {},
  },
]

const twice = { tool: 'twice', type: 'rpc.duplicate', fault: client, on: ofLegacyEra }

let stage: Stage

before(async () => {
  stage = await Stage.start([...scenes, twice])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

test('rpc.duplicate: both replies are on the wire, as events of one stream', () =>
  everywhere(twice, async ({ name }) => {
    const agent = await RawClient.open(stage.gateway.mcp(name))
    const params = { name: 'twice', arguments: {} }
    const { messages } = await agent.post({ jsonrpc: '2.0', id: 'a', method: 'tools/call', params })
    assert.equal(messages.length, 2, name)
    assert.deepEqual(messages[0], messages[1])
    assert.equal(messages[0]?.id, 'a')
  }))

test('no breaker opened over it', async () => {
  assert.deepEqual(await stage.gateway.sums('breakwater_breaker_transitions_total', 'state', ''), {})
  await assertSound(stage)
})
