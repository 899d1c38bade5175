import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { OtlpGrpcReceiver } from '../support/otlp-grpc-receiver.ts'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'

let server: RawServer

before(async () => {
  server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { content: [] } }))
      return true
    },
    ['plain'],
  )
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Runs a gateway for one call, stops it, and waits for the end of its process. */
async function oneCall(env: Readonly<Record<string, string>>): Promise<void> {
  const all = { OTEL_TRACES_SAMPLER: 'always_on', ...env }
  const gateway = await Gateway.start({ servers: { raw: { url: server.url } } }, { env: all })
  await gateway.waitFor('up', 'raw')
  const client = await RawClient.open(gateway.mcp('raw'))
  const params = { name: 'plain', arguments: {} }
  await client.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
}

test('the gateway sends its last spans before it ends, and no metrics or logs', async (t) => {
  const collector = await OtlpReceiver.start(t)
  await oneCall({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
  assert.equal(collector.spans.length, 2)
  assert.deepEqual(collector.paths, ['/v1/traces'])
})

test('over gRPC as well it ends, whether its collector takes its last spans or never answers', async (t) => {
  for (const behaviour of ['takes', 'hangs'] as const) {
    const collector = await OtlpGrpcReceiver.start(t)
    collector.behaviour = behaviour
    await oneCall({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_EXPORTER_OTLP_TIMEOUT: '1000',
    })
    assert.equal(collector.requests.length, 1)
    assert.equal(collector.spans.length, behaviour === 'takes' ? 2 : 0)
  }
})
