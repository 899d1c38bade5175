import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { until } from '../support/until.ts'
import { armed, cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { post, RawClient } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { closeServers, RawServer, sendJson, type Seen, sendResult } from './support/raw-server.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const AGENT = 'b7ad6b7169203331'

/** Secrets: in the server's config, and from an agent. */
const SECRET = 'key-of-the-operator'
const FORWARDED = 'key-of-the-agent'

let server: RawServer
let receiver: OtlpReceiver
let gateway: Gateway
const ends: (() => void)[] = []

before(async () => {
  receiver = await OtlpReceiver.start({ after: (end) => void ends.push(end as () => void) })
  server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      const { name } = message.params as Json
      if (name === 'rude') {
        const error = { code: -32602, message: `no entry with ${SECRET} or ${FORWARDED}` }
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
        return true
      }
      const isError = name === 'broken'
      const result = { content: [{ type: 'text', text: 'ok' }], isError }
      sendResult(response, message.id, result)
      return true
    },
    ['plain', 'refused', 'broken', 'modern', 'rude', 'carried'],
  )
  gateway = await Gateway.start(
    {
      servers: {
        raw: { url: server.url, headers: { 'X-Key': SECRET }, forwardHeaders: ['x-agent-key'] },
        partner: { url: server.url, forwardBaggage: true },
        local: stdioToolbox(),
      },
      gateway: { environment: 'test' },
      policies: {
        defaults: { retry: { base: 1, cap: 5 } },
        overrides: [{ match: { server: 'raw' }, effect: 'read_only' }],
      },
      chaos: armed([
        {
          ...{ name: 'no-way', type: 'conn.refused', maxInjections: 1 },
          match: { server: 'raw', tool: 'refused' },
        },
      ]),
    },
    {
      env: {
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        OTEL_BSP_SCHEDULE_DELAY: '20',
        OTEL_TRACES_SAMPLER: 'parentbased_always_off',
      },
    },
  )
  await gateway.waitFor('up', 'raw', 'local', 'partner')
})
after(async () => {
  await cleanUp()
  closeServers()
  for (const end of ends) end()
})

const textOf = (tool: string, meta: Json = {}) =>
  JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: tool, arguments: {}, _meta: meta },
  })

const lastCall = () => server.of('tools/call').at(-1) as Seen
const metaOf = ({ message }: Seen) => (message.params as { _meta: Json })._meta

async function spansOf(tool: string, count: number) {
  const found = () => receiver.spans.filter(({ attributes }) => attributes['gen_ai.tool.name'] === tool)
  await receiver.has(receiver.spans.length - found().length + count)
  assert.equal(found().length, count)
  const of = (kind: string) => found().filter((span) => span.kind === kind)
  return { server: of('server')[0], clients: of('client') }
}

test('one call with a fault and a retry is one trace, from the agent through the gateway to the server', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  await client.post(textOf('refused', { traceparent: `00-${TRACE}-${AGENT}-01`, tracestate: 'agent=1' }))
  const spans = await spansOf('refused', 3)

  assert.equal(spans.server?.name, 'tools/call refused')
  assert.equal(spans.server?.traceId, TRACE)
  assert.equal(spans.server?.parentSpanId, AGENT)
  assert.equal(spans.server?.attributes['breakwater.retries'], 1)
  assert.match(String(spans.server?.attributes['mcp.session.id']), /^[0-9a-f]{16}$/)

  const [refused, second] = spans.clients
  assert.ok(spans.clients.every((span) => span.parentSpanId === spans.server?.spanId))
  assert.equal(refused?.attributes['error.type'], 'upstream_unavailable')
  assert.equal(refused?.events[0]?.attributes['breakwater.fault.name'], 'no-way')
  assert.equal(refused?.events[0]?.attributes['breakwater.fault.fate'], 'masked')
  assert.equal(second?.status, 'unset')
  const { hostname, port } = new URL(server.url)
  assert.equal(second?.attributes['server.address'], hostname)
  assert.equal(second?.attributes['server.port'], Number(port))
  assert.equal(second?.attributes['network.transport'], 'tcp')
  assert.equal(second?.attributes['mcp.protocol.version'], '2025-11-25')

  const traceparent = `00-${TRACE}-${second?.spanId}-01`
  assert.deepEqual(metaOf(lastCall()), { traceparent, tracestate: 'agent=1' })
  assert.equal(lastCall().headers.traceparent, traceparent)
  assert.equal(lastCall().headers.tracestate, 'agent=1')

  await until('the call is logged', () => gateway.log.some(({ tool }) => tool === 'refused'))
  const line = gateway.log.find(({ tool }) => tool === 'refused')
  assert.deepEqual([line?.traceId, line?.faults, line?.fates], [TRACE, ['no-way'], ['no-way masked']])
  assert.equal(line?.spanId, spans.server?.spanId)
  assert.equal(await gateway.metric('breakwater_fault_outcomes_total', 'fate="masked"'), 1)
})

test('an unsampled trace sends nothing on success, and everything on failure', async () => {
  const client = await RawClient.open(gateway.mcp('raw'))
  await client.post(textOf('plain'))
  assert.match(String(metaOf(lastCall()).traceparent), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/)
  await client.post(textOf('broken'))
  const spans = await spansOf('broken', 2)
  assert.equal(spans.server?.attributes['error.type'], 'tool_error')
  assert.equal(spans.server?.attributes['breakwater.kept'], 'error')
  await spansOf('plain', 0)
})

test('an error of a server describes its spans, without the secrets that the server was given', async () => {
  const client = await RawClient.open(gateway.mcp('raw'), { headers: { 'x-agent-key': FORWARDED } })
  await client.post(textOf('rude'))
  const spans = await spansOf('rude', 2)
  for (const span of [spans.server, ...spans.clients]) {
    assert.equal(span?.attributes['error.type'], '-32602')
    assert.match(String(span?.message), /^no entry with \S+ or \S+$/)
    assert.doesNotMatch(String(span?.message), /key-of/)
  }
})

test('baggage tells the conversation and the agent to spans and the log, and reaches only servers that may have it', async () => {
  const baggage = 'user.id=7,gen_ai.conversation.id=c%201,gen_ai.agent.name=planner,gen_ai.workflow.name=trip'
  const agent = {
    'gen_ai.conversation.id': 'c 1',
    'gen_ai.agent.name': 'planner',
    'gen_ai.workflow.name': 'trip',
  }
  const changed = (n: number) => ({
    jsonrpc: '2.0',
    method: 'notifications/roots/list_changed',
    params: { _meta: { baggage, n } },
  })
  for (const [index, name] of ['raw', 'partner'].entries()) {
    const begun = server.seen.length
    const meta = { baggage, other: 1, traceparent: `00-${TRACE}-${AGENT}-01` }
    const capabilities = { roots: { listChanged: true } }
    const said = { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 'raw', version: '1' } }
    // A client's handshake may carry baggage too, which is passed on.
    const params = { ...said, _meta: { baggage, handshake: index } }
    await post(gateway.mcp(name), JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params }))
    const handshake = server
      .of('initialize')
      .find((seen) => (metaOf(seen) as Json | undefined)?.handshake === index)
    assert.equal(metaOf(handshake as Seen).baggage, undefined)
    const client = await RawClient.open(gateway.mcp(name), { capabilities })
    await client.post(textOf('carried', meta))
    const { baggage: passed, other } = metaOf(lastCall())
    assert.deepEqual([passed, other], [name === 'partner' ? baggage : undefined, 1])
    await client.post(changed(index))
    const told = () => server.of('notifications/roots/list_changed').find((seen) => metaOf(seen).n === index)
    await until('the server is told', () => told() !== undefined)
    assert.equal(metaOf(told() as Seen).baggage, passed)
    const texts = server.seen.slice(begun).map(({ text }) => text)
    assert.equal(
      texts.some((text) => text.includes('user.id')),
      name === 'partner',
    )
  }
  const spans = await spansOf('carried', 4)
  assert.deepEqual(
    Object.fromEntries(Object.keys(agent).map((key) => [key, spans.server?.attributes[key]])),
    agent,
  )
  assert.equal(spans.server?.attributes['user.id'], undefined)
  const text = await (await fetch(`${gateway.control}/metrics`)).text()
  assert.doesNotMatch(text, /planner|"c 1"|"trip"/)
})

test('a modern call takes part in the trace of its header, has no session, and is known by the id that its agent gave it', async () => {
  const traceparent = `00-${TRACE}-${AGENT}-01`
  const client = new ModernClient(gateway.mcp('raw'))
  const request = { ...client.request('tools/call', { name: 'modern', arguments: {} }), id: 'of-agent' }
  await client.post(request, { traceparent })
  const spans = await spansOf('modern', 2)
  assert.equal(spans.server?.parentSpanId, AGENT)
  assert.equal(spans.server?.attributes['mcp.protocol.version'], '2026-07-28')
  assert.equal(spans.server?.attributes['mcp.session.id'], undefined)
  assert.equal(spans.server?.attributes['jsonrpc.request.id'], 'of-agent')
  assert.equal(spans.clients[0]?.attributes['jsonrpc.request.id'], 'of-agent')
})

test('a server that is a process of the gateway is reached through a pipe', async () => {
  const client = await RawClient.open(gateway.mcp('local'))
  await client.post(textOf('pid', { traceparent: `00-${TRACE}-${AGENT}-01` }))
  const { clients } = await spansOf('pid', 2)
  assert.equal(clients[0]?.attributes['network.transport'], 'pipe')
  assert.equal(clients[0]?.attributes['server.address'], undefined)
  assert.equal(clients[0]?.attributes['mcp.protocol.version'], '2025-11-25')
})

test("the spans' endpoint is fixed at boot: a reload says so, and spans go to the old endpoint", async () => {
  const config = JSON.parse(await readFile(gateway.file, 'utf8')) as { telemetry: Json }
  const traces = { endpoint: 'http://127.0.0.1:1', sample: 1 }
  const telemetry = { ...config.telemetry, traces }
  await writeFile(gateway.file, JSON.stringify({ ...config, telemetry }))
  const { body } = await gateway.post('/admin/reload')
  const needsRestart = (body.needsRestart as string[]).toSorted()
  assert.deepEqual(needsRestart, ['telemetry.traces.endpoint', 'telemetry.traces.sample'])
  const inForce = await gateway.admin<{ config: { telemetry: { traces: Json } } }>('/admin/config')
  assert.equal(inForce.body.config.telemetry.traces.endpoint, undefined)
  assert.equal(inForce.body.config.telemetry.traces.sample, 0.1)
  const client = await RawClient.open(gateway.mcp('raw'))
  await client.post(textOf('broken'))
  await spansOf('broken', 4)
})

test('an endpoint for spans enables no metrics, conventional metrics included', async () => {
  assert.deepEqual([...new Set(receiver.paths)], ['/v1/traces'])
  assert.equal(await gateway.metric('mcp_'), undefined)
})
