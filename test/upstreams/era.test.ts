import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import type { Clock } from '../../src/mesh/clock.ts'
import { EraUpstream, type EraOptions } from '../../src/upstreams/era.ts'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import { ModernHttpUpstream } from '../../src/upstreams/modern/modern-http.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { discovered, httpOptions, json, rawHttp, type Came } from '../support/modern.ts'

const never = new AbortController().signal

function eraUpstream(
  t: TestContext,
  url: string,
  clock: Clock,
  era: EraOptions['era'] = 'auto',
): EraUpstream {
  const upstream = new EraUpstream({
    era,
    clock,
    make: (onVersionError) => ({
      legacy: new HttpUpstream({ ...httpOptions(url, clock), onVersionError }),
      modern: new ModernHttpUpstream({ ...httpOptions(url, clock), onVersionError }),
    }),
  })
  t.after(() => upstream.close())
  return upstream
}

type Refuse = (id: unknown, response: ServerResponse) => void

const refusal =
  (status: number, code: number, data?: object): Refuse =>
  (id, response) =>
    json(response, { jsonrpc: '2.0', id, error: { code, message: 'no', data } }, status)

/** Speaks both eras, or refuses what `refuses` says. */
function endpoint(t: TestContext, refuses: { legacy?: Refuse; modern?: Refuse }) {
  return rawHttp(t, ({ method, body, headers }: Came, response) => {
    if (method !== 'POST') return void response.writeHead(405).end()
    if (body.id === undefined) return void response.writeHead(202).end()
    const era = headers['mcp-protocol-version'] === '2026-07-28' ? 'modern' : 'legacy'
    const refuse = refuses[era]
    if (refuse !== undefined) return refuse(body.id, response)
    const greeting = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      serverInfo: { name: 'old', version: '1' },
    }
    const results: Record<string, unknown> = { 'server/discover': discovered, initialize: greeting }
    json(response, {
      jsonrpc: '2.0',
      id: body.id,
      result: results[String(body.method)] ?? { content: [], era },
    })
  })
}

const versionError = refusal(400, -32022, { supported: ['2026-07-28'], requested: '2025-11-25' })

test('a server that answers as a modern one is spoken to as one', async (t) => {
  const { url, came } = await endpoint(t, {})
  const clock = new ManualClock(5_000)
  const upstream = eraUpstream(t, url, clock)
  assert.equal(upstream.era(), undefined)
  const link = await upstream.open(new TestCaller(), never)
  assert.equal(link.greeting.value.protocolVersion, '2026-07-28')
  assert.deepEqual(upstream.era(), { era: 'modern', decidedBy: 'probe', at: 5_000 })
  await upstream.open(new TestCaller(), never)
  assert.equal(came.length, 1)
})

const answers: Record<string, Refuse> = {
  '400/-32000': refusal(400, -32000),
  '400/-32602': refusal(400, -32602),
  '400/-32022 with other versions': refusal(400, -32022, { supported: ['2025-11-25'] }),
  '404/-32601': refusal(404, -32601),
  '200/-32601': refusal(200, -32601),
  '500/-32603': refusal(500, -32603),
  'a bare 404': (_, response) => void response.writeHead(404).end(),
  'a bare 405': (_, response) => void response.writeHead(405).end(),
  'a bare 500': (_, response) => void response.writeHead(500).end('oops'),
  'a bare 202': (_, response) => void response.writeHead(202).end(),
  HTML: (_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
  'another result': (id, response) => json(response, { jsonrpc: '2.0', id, result: {} }),
}

for (const [what, modern] of Object.entries(answers)) {
  test(`a server that answers ${what} when it is asked is a legacy one`, async (t) => {
    const { url, came } = await endpoint(t, { modern })
    const upstream = eraUpstream(t, url, new ManualClock())
    const link = await upstream.open(new TestCaller(), never)
    assert.equal(link.greeting.value.protocolVersion, '2025-11-25')
    assert.equal(upstream.era()?.era, 'legacy')
    await upstream.open(new TestCaller(), never)
    assert.deepEqual(
      came.map(({ body }) => body.method),
      [
        'server/discover',
        ...['initialize', 'notifications/initialized'],
        ...['initialize', 'notifications/initialized'],
      ],
    )
  })
}

test('a server that cannot be reached, or that refuses everything, gets no verdict', async (t) => {
  const { url } = await endpoint(t, { modern: refusal(401, -32000) })
  const down = eraUpstream(t, 'http://127.0.0.1:1/mcp', new ManualClock())
  await assert.rejects(down.open(new TestCaller(), never), { reason: 'upstream_unavailable', sent: false })
  const closed = eraUpstream(t, url, new ManualClock())
  await assert.rejects(closed.open(new TestCaller(), never), { reason: 'upstream_unauthorized' })
  const broken = await endpoint(t, { modern: refusal(500, -32603), legacy: refusal(500, -32603) })
  const neither = eraUpstream(t, broken.url, new ManualClock())
  await assert.rejects(neither.open(new TestCaller(), never), { reason: 'upstream_refused' })
  assert.deepEqual([down.era(), closed.era(), neither.era()], [undefined, undefined, undefined])
})

test('a verdict is asked for again when it is old, and conversations in the other era end', async (t) => {
  const refuses: { modern?: Refuse } = { modern: refusal(404, -32601) }
  const { url } = await endpoint(t, refuses)
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  const old = await upstream.open(new TestCaller(), never)
  delete refuses.modern
  await clock.advance(599_999)
  await upstream.open(new TestCaller(), never)
  assert.deepEqual([upstream.era()?.era, old.ended.aborted], ['legacy', false])
  await clock.advance(1)
  await upstream.open(new TestCaller(), never)
  assert.deepEqual([upstream.era()?.era, old.ended.aborted], ['modern', true])
})

test('a legacy server that is asked again keeps its conversations', async (t) => {
  const { url } = await endpoint(t, {
    modern: refusal(400, -32022, { requested: '2026-07-28', supported: [] }),
  })
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  const link = await upstream.open(new TestCaller(), never)
  await clock.advance(600_000)
  await upstream.open(new TestCaller(), never)
  assert.deepEqual([upstream.era()?.decidedBy, link.ended.aborted], ['probe', false])
})

test('a version that the server refuses is not spoken again', async (t) => {
  const refuses: { modern?: Refuse; legacy?: Refuse } = { modern: refusal(404, -32601) }
  const { url } = await endpoint(t, refuses)
  const upstream = eraUpstream(t, url, new ManualClock())
  const caller = new TestCaller()
  const link = await upstream.open(caller, never)
  delete refuses.modern
  refuses.legacy = versionError
  const outcome = await link.exchange(toolCall('a', {}, { caller }))
  assert.ok(outcome.kind === 'answered' && outcome.result.status === 400)
  assert.equal(link.ended.aborted, true)
  const again = await upstream.open(caller, never)
  assert.equal((await again.exchange(toolCall('a', {}, { caller }))).kind, 'answered')
  assert.deepEqual([upstream.era()?.era, upstream.era()?.decidedBy], ['modern', 'version_error'])
})

test('an opening that fails for the era is tried in the other one at once', async (t) => {
  const refuses: { modern?: Refuse; legacy?: Refuse } = {}
  const { url } = await endpoint(t, refuses)
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  await upstream.open(new TestCaller(), never)
  refuses.modern = refusal(400, -32000)
  await clock.advance(60_000)
  const link = await upstream.open(new TestCaller(), never)
  assert.equal(link.greeting.value.protocolVersion, '2025-11-25')
})

test('an era that the config names is not questioned', async (t) => {
  const { url, came } = await endpoint(t, { modern: refusal(404, -32601) })
  const legacy = eraUpstream(t, url, new ManualClock(7), 'legacy')
  await legacy.open(new TestCaller(), never)
  assert.deepEqual(legacy.era(), { era: 'legacy', decidedBy: 'config', at: 7 })
  assert.equal(came[0]?.body.method, 'initialize')
  const modern = eraUpstream(t, url, new ManualClock(7), 'modern')
  await assert.rejects(modern.open(new TestCaller(), never), { reason: 'upstream_refused' })
  assert.equal(modern.era()?.era, 'modern')
})
