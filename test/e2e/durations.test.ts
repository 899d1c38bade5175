import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { ReceivedPoint } from '../support/otlp-points.ts'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { until } from '../support/until.ts'
import { armed, cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

const TOOLS = ['plain', 'flaky', 'broken', 'refused', 'modern']

let server: RawServer
let receiver: OtlpReceiver
let gateway: Gateway
let client: RawClient
const ends: (() => void)[] = []

/** Number of calls of `flaky`; every other call fails. */
let flaky = 0

before(async () => {
  receiver = await OtlpReceiver.start({ after: (end) => void ends.push(end as () => void) })
  server = await RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
    const reply = (rest: Json) => (sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, ...rest })), true)
    switch (method) {
      case 'initialize':
        return reply({
          result: {
            protocolVersion: params?.protocolVersion,
            capabilities: { tools: {}, prompts: {} },
            serverInfo: { name: 'raw', version: '1.0.0' },
          },
        })
      case 'prompts/list':
        return reply({ result: { prompts: [{ name: 'greeting' }] } })
      case 'prompts/get':
        return reply({ result: { messages: [] } })
      case 'tools/call': {
        if (params?.name === 'flaky' && ++flaky % 2 === 1)
          return reply({ error: { code: -32603, message: 'not now' } })
        return reply({ result: { content: [], isError: params?.name === 'broken' } })
      }
      default:
        return false
    }
  }, TOOLS)
  gateway = await Gateway.start(
    {
      servers: { raw: { url: server.url }, local: stdioToolbox() },
      gateway: { environment: 'test' },
      policies: {
        defaults: { retry: { base: 1, cap: 5, budget: { floor: 100 } }, breaker: false },
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
        OTEL_METRICS_EXPORTER: 'otlp',
        OTEL_METRIC_EXPORT_INTERVAL: '50',
      },
    },
  )
  await gateway.waitFor('up', 'raw', 'local')
  client = await RawClient.open(gateway.mcp('raw'))
})
after(async () => {
  await cleanUp()
  closeServers()
  for (const end of ends) end()
})

const SERVER = 'mcp.server.operation.duration'
const CLIENT = 'mcp.client.operation.duration'

function pointsOf(metric: string, attributes: Json): ReceivedPoint[] {
  return (receiver.points.get(metric) ?? []).filter((point) =>
    Object.entries(attributes).every(([name, value]) => point.attributes[name] === value),
  )
}

const counted = (metric: string, attributes: Json) =>
  pointsOf(metric, attributes).reduce((sum, { count }) => sum + count, 0)

/** Waits until the collector has this count. */
const arrived = (metric: string, attributes: Json, count: number) =>
  until(`${count} of ${metric} ${JSON.stringify(attributes)}`, () => counted(metric, attributes) === count)

const ofTool = (tool: string) => ({ 'mcp.method.name': 'tools/call', 'gen_ai.tool.name': tool })

/** The attributes common to all points of a tool's calls. */
const common = (tool: string) => ({
  ...ofTool(tool),
  'gen_ai.operation.name': 'execute_tool',
  'mcp.protocol.version': '2025-11-25',
  'network.transport': 'tcp',
  'network.protocol.name': 'http',
  'breakwater.server': 'raw',
})

const peer = () => ({
  'server.address': new URL(server.url).hostname,
  'server.port': Number(new URL(server.url).port),
})

test('a call is one point of the server and each attempt one of the client, so that they tell the amplification', async () => {
  const calls = { plain: 5, flaky: 4, refused: 3 }
  const before = server.of('tools/call').length
  for (const [tool, count] of Object.entries(calls))
    for (let n = 0; n < count; n++) assert.equal((await client.call(tool)).error, undefined)
  const seen = server.of('tools/call').length - before
  // One attempt was refused by a fault, and did not reach the server.
  assert.deepEqual([seen, flaky], [5 + 8 + 3, 8])
  await arrived(SERVER, { 'mcp.method.name': 'tools/call' }, 12)
  await arrived(CLIENT, { 'mcp.method.name': 'tools/call' }, seen + 1)
  // Prometheus gets the same numbers.
  const attempts = await gateway.sums('mcp_client_operation_duration_seconds_count', 'gen_ai_tool_name', '')
  assert.deepEqual(attempts, { plain: 5, flaky: 8, refused: 4 })
  const requests = await gateway.sums('mcp_server_operation_duration_seconds_count', 'gen_ai_tool_name', '')
  assert.deepEqual(requests, calls)
})

test('attributes, unit and bounds follow the conventions, and an injected failure is marked', async () => {
  const attributesOf = (metric: string, tool: string) =>
    pointsOf(metric, ofTool(tool)).map(({ attributes }) => attributes)
  assert.deepEqual(attributesOf(SERVER, 'plain'), [common('plain')])
  assert.deepEqual(attributesOf(CLIENT, 'plain'), [{ ...common('plain'), ...peer() }])

  const failed = { 'error.type': '-32603', 'rpc.response.status_code': '-32603' }
  assert.deepEqual(attributesOf(SERVER, 'flaky'), [common('flaky')])
  assert.deepEqual(attributesOf(CLIENT, 'flaky'), [
    { ...common('flaky'), ...failed, ...peer() },
    { ...common('flaky'), ...peer() },
  ])

  const injected = { 'breakwater.fault.injected': true }
  const refused = { 'error.type': 'upstream_unavailable', ...injected }
  // The retry and the call succeeded; the injection is marked anyway.
  assert.deepEqual(attributesOf(SERVER, 'refused'), [
    { ...common('refused'), ...injected },
    common('refused'),
  ])
  assert.deepEqual(attributesOf(CLIENT, 'refused'), [
    { ...common('refused'), ...refused, ...peer() },
    { ...common('refused'), ...peer() },
  ])

  const [point] = pointsOf(SERVER, ofTool('plain'))
  assert.deepEqual([point?.unit, point?.isCumulative, point?.count], ['s', true, 5])
  assert.deepEqual(point?.bounds, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300])
  assert.equal(
    point?.counts.reduce((sum, count) => sum + count, 0),
    5,
  )
  assert.ok(point !== undefined && point.sum > 0 && point.startNanos < point.atNanos)
  assert.equal(point.resource['service.name'], 'breakwater')
})

test('a result with isError is a tool error, and a pipe has no address', async () => {
  await client.call('broken')
  const local = await RawClient.open(gateway.mcp('local'))
  await local.call('pid')
  await arrived(SERVER, ofTool('broken'), 1)
  assert.equal(pointsOf(SERVER, ofTool('broken'))[0]?.attributes['error.type'], 'tool_error')
  await arrived(CLIENT, ofTool('pid'), 1)
  const { 'network.protocol.name': _, ...overPipe } = common('pid')
  const expected = { ...overPipe, 'network.transport': 'pipe', 'breakwater.server': 'local' }
  assert.deepEqual(pointsOf(CLIENT, ofTool('pid'))[0]?.attributes, expected)
})

test('names that agents make up share series: tools, prompts, methods and versions', async () => {
  const modern = new ModernClient(gateway.mcp('raw'))
  for (let n = 0; n < 3; n++) {
    await client.call(`made up ${n}`)
    await client.request('prompts/get', { name: `made up ${n}` })
    await client.request(`made/up${n}`)
  }
  await client.request('prompts/get', { name: 'greeting' })
  await modern.call('modern')
  await arrived(SERVER, ofTool('_other'), 3)
  await arrived(SERVER, { 'mcp.method.name': '_OTHER' }, 3)
  await arrived(SERVER, { 'mcp.method.name': 'prompts/get' }, 4)
  const prompts = pointsOf(SERVER, { 'mcp.method.name': 'prompts/get' })
  assert.deepEqual(
    prompts.map(({ attributes, count }) => [attributes['gen_ai.prompt.name'], count]),
    [
      ['_other', 3],
      ['greeting', 1],
    ],
  )
  assert.equal(prompts[0]?.attributes['gen_ai.operation.name'], undefined)
  await arrived(SERVER, ofTool('modern'), 1)
  assert.equal(pointsOf(SERVER, ofTool('modern'))[0]?.attributes['mcp.protocol.version'], '2026-07-28')
})

test('an ended session makes a point on either side, and a client without sessions makes none', async () => {
  const leaver = await RawClient.open(gateway.mcp('raw'))
  await leaver.call('plain')
  await fetch(leaver.url, { method: 'DELETE', headers: leaver.headers })
  const network = {
    'mcp.protocol.version': '2025-11-25',
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'breakwater.server': 'raw',
  }
  await arrived('mcp.server.session.duration', {}, 1)
  await arrived('mcp.client.session.duration', {}, 1)
  assert.deepEqual(pointsOf('mcp.server.session.duration', {})[0]?.attributes, network)
  assert.deepEqual(pointsOf('mcp.client.session.duration', {})[0]?.attributes, { ...network, ...peer() })
})

test('the last points are sent at the end, with the sessions that end with the gateway', async () => {
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  assert.ok(counted('mcp.server.session.duration', { 'error.type': 'shutting_down' }) >= 2)
})
