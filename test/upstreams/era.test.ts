import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { ownInitializeParams } from '../../src/protocol/identity.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import type { Clock } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { EraUpstream, type EraOptions } from '../../src/upstreams/era.ts'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import type { UpstreamSession } from '../../src/upstreams/upstream.ts'
import { ModernHttpUpstream } from '../../src/upstreams/modern/modern-http.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { discovered, httpOptions, json, rawHttp, type Came } from '../support/modern.ts'
import { until } from '../support/until.ts'

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
    initializeParams: ownInitializeParams,
    handshakeMs: 10_000,
    make: (onVersionError) => ({
      legacy: new HttpUpstream({ ...httpOptions(url, clock), onVersionError: onVersionError('legacy') }),
      modern: new ModernHttpUpstream({
        ...httpOptions(url, clock),
        onVersionError: onVersionError('modern'),
      }),
    }),
  })
  t.after(() => upstream.close())
  return upstream
}

type Refuse = (id: unknown, response: ServerResponse, came: Came) => void

const refusal =
  (status: number, code: number, data?: object): Refuse =>
  (id, response) =>
    json(response, { jsonrpc: '2.0', id, error: { code, message: 'no', data } }, status)

type Refusals = { legacy?: Refuse; modern?: Refuse }

/** Speaks both eras, except for the requests in `refuses`; with `sessions`, its legacy sessions have ids. */
function endpoint(t: TestContext, refuses: Refusals, { sessions = false } = {}) {
  let count = 0
  return rawHttp(t, (came, response) => {
    const { method, body, headers } = came
    if (method !== 'POST') return void response.writeHead(405).end()
    if (body.id === undefined) return void response.writeHead(202).end()
    const era = headers['mcp-protocol-version'] === '2026-07-28' ? 'modern' : 'legacy'
    const refuse = refuses[era]
    if (refuse !== undefined) return refuse(body.id, response, came)
    const initializeResult = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      serverInfo: { name: 'old', version: '1' },
    }
    if (sessions && body.method === 'initialize') response.setHeader('mcp-session-id', `session-${++count}`)
    const results: Record<string, unknown> = { 'server/discover': discovered, initialize: initializeResult }
    json(response, {
      jsonrpc: '2.0',
      id: body.id,
      result: results[String(body.method)] ?? { content: [], era },
    })
  })
}

const versionError = refusal(400, -32022, { supported: ['2026-07-28'], requested: '2025-11-25' })

const legacy = () => new TestCaller()
const modern = () => new TestCaller({ era: 'modern' })
const eraOf = ({ initializeResult }: UpstreamSession) =>
  initializeResult.value.protocolVersion === '2026-07-28' ? 'modern' : 'legacy'
const asked = (came: readonly Came[]) => came.flatMap(({ body }) => body.method ?? [])
const spoken = (upstream: EraUpstream) => {
  const { legacy: old, modern: recent } = upstream.eras()
  return [old?.speaks, recent?.speaks]
}

test("the gateway speaks each client's era to a server of both eras, and probes the server only when needed", async (t) => {
  const { url, came } = await endpoint(t, {})
  const clock = new ManualClock(5_000)
  const upstream = eraUpstream(t, url, clock)
  assert.deepEqual(upstream.eras(), {})
  assert.equal(eraOf(await upstream.open(modern(), never)), 'modern')
  const verdict = { speaks: true, decidedBy: 'probe', at: 5_000 }
  assert.deepEqual(upstream.eras(), { modern: verdict })
  await clock.advance(1_000)
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'legacy')
  assert.deepEqual(upstream.eras(), { modern: verdict, legacy: { ...verdict, at: 6_000 } })
  assert.equal(eraOf(await upstream.open(modern(), never)), 'modern')
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'legacy')
  const handshake = ['initialize', 'notifications/initialized']
  assert.deepEqual(asked(came), ['server/discover', ...handshake, ...handshake])
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

for (const [what, refuse] of Object.entries(answers)) {
  test(`a server that answers ${what} when it is asked as a modern one is a legacy one`, async (t) => {
    const { url, came } = await endpoint(t, { modern: refuse })
    const upstream = eraUpstream(t, url, new ManualClock())
    for (const caller of [modern(), modern(), legacy()])
      assert.equal(eraOf(await upstream.open(caller, never)), 'legacy')
    assert.deepEqual(spoken(upstream), [true, false])
    const handshake = ['initialize', 'notifications/initialized']
    assert.deepEqual(asked(came), ['server/discover', ...handshake, ...handshake, ...handshake])
  })
}

const refusesInitialize: Record<string, Refuse> = {
  'that its version is wrong': versionError,
  'that it knows no such method': refusal(404, -32601),
  'nothing but a 500': (_, response) => void response.writeHead(500).end('oops'),
}

for (const [what, refuse] of Object.entries(refusesInitialize)) {
  test(`a server that answers ${what} to initialize is modern, and gets no other initialize for ten minutes`, async (t) => {
    const { url, came } = await endpoint(t, { legacy: refuse })
    const clock = new ManualClock()
    const upstream = eraUpstream(t, url, clock)
    await upstream.open(modern(), never)
    const handshakes = () => asked(came).filter((method) => method === 'initialize').length
    const upstreamSessions = await Promise.all([1, 2, 3, 4, 5].map(() => upstream.open(legacy(), never)))
    assert.deepEqual(
      upstreamSessions.map(eraOf),
      upstreamSessions.map(() => 'modern'),
    )
    assert.deepEqual(spoken(upstream), [false, true])
    assert.equal(handshakes(), 2, 'one handshake for the client, one for the gateway')
    await clock.advance(599_999)
    await upstream.open(legacy(), never)
    assert.equal(handshakes(), 2)
    await clock.advance(1)
    await upstream.open(legacy(), never)
    assert.equal(handshakes(), 4)
    assert.ok(upstreamSessions.every(({ ended }) => !ended.aborted))
  })
}

test('a legacy client that comes first does not need the modern era', async (t) => {
  const { url, came } = await endpoint(t, {})
  const upstream = eraUpstream(t, url, new ManualClock())
  await upstream.open(legacy(), never)
  assert.deepEqual(asked(came), ['initialize', 'notifications/initialized'])
  assert.deepEqual(spoken(upstream), [true, undefined])
})

test('a refused hello of one client decides nothing for the others', async (t) => {
  const { url } = await endpoint(t, {
    legacy: (id, response, { body }) => {
      const isOdd = (body.params?.clientInfo as { name?: string } | undefined)?.name === 'odd'
      if (isOdd)
        return json(response, { jsonrpc: '2.0', id, error: { code: -32000, message: 'not you' } }, 400)
      const initializeResult = {
        protocolVersion: '2025-11-25',
        capabilities: {},
        serverInfo: { name: 'old', version: '1' },
      }
      json(response, { jsonrpc: '2.0', id, result: initializeResult })
    },
  })
  const upstream = eraUpstream(t, url, new ManualClock())
  await upstream.open(modern(), never)
  const kept = await upstream.open(legacy(), never)
  const odd = new TestCaller({
    initializeParams: { capabilities: {}, clientInfo: { name: 'odd', version: '1' } },
  })
  await assert.rejects(upstream.open(odd, never), { reason: 'upstream_refused' })
  assert.deepEqual([...spoken(upstream), kept.ended.aborted], [true, true, false])
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'legacy')
})

test('the gateway bridges to a server silent for two seconds, and learns its era from the late answer', async (t) => {
  let answer: (() => void) | undefined
  const refuses: Refusals = {
    legacy: (id, response) => {
      const initializeResult = {
        protocolVersion: '2025-11-25',
        capabilities: {},
        serverInfo: { name: 'old', version: '1' },
      }
      answer = () => json(response, { jsonrpc: '2.0', id, result: initializeResult })
    },
  }
  const { url, came } = await endpoint(t, refuses)
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  await upstream.open(modern(), never)
  const opening = Promise.all([upstream.open(legacy(), never), upstream.open(legacy(), never)])
  await until('the server has the question', () => answer !== undefined)
  await clock.advance(2_000)
  assert.deepEqual((await opening).map(eraOf), ['modern', 'modern'])
  assert.equal(upstream.eras().legacy?.decidedBy, 'silence')
  await upstream.open(legacy(), never)
  assert.equal(asked(came).filter((method) => method === 'initialize').length, 1)
  delete refuses.legacy
  answer?.()
  await until('the legacy era is known', () => upstream.eras().legacy?.speaks === true)
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'legacy')
})

test('the gateway probes a silent server again after a minute', async (t) => {
  const { url, came } = await endpoint(t, { legacy: () => undefined })
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  await upstream.open(modern(), never)
  const handshakes = () => asked(came).filter((method) => method === 'initialize').length
  for (const round of [1, 2]) {
    const opening = upstream.open(legacy(), never)
    await until('the server has the handshake', () => handshakes() === round)
    await clock.advance(2_000)
    assert.equal(eraOf(await opening), 'modern')
    await clock.advance(59_999)
    await upstream.open(legacy(), never)
    assert.equal(handshakes(), round)
    await clock.advance(1)
  }
})

test('a client that gives up during the detection leaves no verdict, and the next client detects the era', async (t) => {
  const refuses: Refusals = { legacy: () => undefined }
  const { url, came } = await endpoint(t, refuses)
  const upstream = eraUpstream(t, url, new ManualClock())
  await upstream.open(modern(), never)
  const patience = new Cancellation()
  const opening = upstream.open(legacy(), patience)
  await until('the server has the handshake', () => asked(came).includes('initialize'))
  const next = upstream.open(legacy(), never)
  delete refuses.legacy
  patience.abort(gatewayError('cancelled', 'enough'))
  await assert.rejects(opening, { reason: 'cancelled' })
  assert.equal(eraOf(await next), 'legacy')
})

test('a server that cannot be reached, or that refuses everything, gets no verdict', async (t) => {
  const { url } = await endpoint(t, { modern: refusal(401, -32000), legacy: refusal(401, -32000) })
  const broken = await endpoint(t, { modern: refusal(500, -32603), legacy: refusal(500, -32603) })
  for (const caller of [legacy(), modern()]) {
    const down = eraUpstream(t, 'http://127.0.0.1:1/mcp', new ManualClock())
    await assert.rejects(down.open(caller, never), { reason: 'upstream_unavailable' })
    const closed = eraUpstream(t, url, new ManualClock())
    await assert.rejects(closed.open(caller, never), { reason: 'upstream_unauthorized' })
    const neither = eraUpstream(t, broken.url, new ManualClock())
    await assert.rejects(neither.open(caller, never), { reason: 'upstream_refused', message: /^initialize/ })
    assert.deepEqual([down.eras(), closed.eras(), neither.eras()], [{}, {}, {}])
  }
})

test('a server that adopts the modern era keeps its sessions; bridged clients without a stream begin anew', async (t) => {
  const refuses: Refusals = { modern: refusal(404, -32601) }
  const { url } = await endpoint(t, refuses)
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  const deaf = { ...modern(), listening: false, receive: () => undefined }
  const [bridged, listens] = [await upstream.open(deaf, never), await upstream.open(modern(), never)]
  const old = await upstream.open(legacy(), never)
  delete refuses.modern
  await clock.advance(599_999)
  assert.equal(eraOf(await upstream.open(modern(), never)), 'legacy')
  await clock.advance(1)
  assert.equal(eraOf(await upstream.open(modern(), never)), 'modern')
  const ended = [bridged, listens, old].map((upstreamSession) => upstreamSession.ended.aborted)
  assert.deepEqual(ended, [true, false, false])
})

test('the end of the modern era ends its conversations, and no others', async (t) => {
  const refuses: Refusals = {}
  const { url } = await endpoint(t, refuses, { sessions: true })
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  const [gone, kept] = [await upstream.open(modern(), never), await upstream.open(legacy(), never)]
  refuses.modern = refusal(404, -32601)
  await clock.advance(600_000)
  assert.equal(eraOf(await upstream.open(modern(), never)), 'legacy')
  assert.deepEqual([gone.ended.aborted, kept.ended.aborted], [true, false])
  assert.deepEqual(spoken(upstream), [true, false])
})

test('a server that refuses further sessions keeps its sessions, and the refusal counts for a minute', async (t) => {
  const refuses: Refusals = {}
  const { url } = await endpoint(t, refuses, { sessions: true })
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  const [, kept] = [await upstream.open(modern(), never), await upstream.open(legacy(), never)]
  refuses.legacy = refusal(400, -32000)
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'modern')
  delete refuses.legacy
  await clock.advance(59_999)
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'modern')
  await clock.advance(1)
  assert.equal(eraOf(await upstream.open(legacy(), never)), 'legacy')
  assert.equal(kept.ended.aborted, false)
})

test('the gateway never repeats a refused version; the other era is not in doubt', async (t) => {
  const refuses: Refusals = {}
  const { url } = await endpoint(t, refuses, { sessions: true })
  const upstream = eraUpstream(t, url, new ManualClock())
  const caller = legacy()
  const [other, upstreamSession] = [await upstream.open(modern(), never), await upstream.open(caller, never)]
  refuses.legacy = versionError
  const outcome = await upstreamSession.exchange(toolCall('a', {}, { caller }))
  assert.ok(outcome.kind === 'answered' && outcome.result.status === 400)
  assert.deepEqual([upstreamSession.ended.aborted, other.ended.aborted], [true, false])
  const again = await upstream.open(caller, never)
  assert.equal((await again.exchange(toolCall('a', {}, { caller }))).kind, 'answered')
  assert.deepEqual(spoken(upstream), [false, true])
  assert.equal(upstream.eras().legacy?.decidedBy, 'version_error')
})

test("a version of one client's own choice that the server refuses does not put its era in doubt", async (t) => {
  const refuses: Refusals = {}
  const { url } = await endpoint(t, refuses, { sessions: true })
  const upstream = eraUpstream(t, url, new ManualClock())
  const caller = legacy()
  const upstreamSession = await upstream.open(caller, never)
  refuses.legacy = refusal(400, -32022, { supported: ['2025-11-25'], requested: '2024-11-05' })
  await upstreamSession.exchange(toolCall('a', {}, { caller }))
  assert.equal(upstreamSession.ended.aborted, false)
})

test('an opening that fails for the era is tried in the other one at once', async (t) => {
  const refuses: Refusals = {}
  const { url } = await endpoint(t, refuses)
  const clock = new ManualClock()
  const upstream = eraUpstream(t, url, clock)
  await upstream.open(modern(), never)
  refuses.modern = refusal(400, -32000)
  await clock.advance(60_000)
  assert.equal(eraOf(await upstream.open(modern(), never)), 'legacy')
})

test('a server that changes from one era to the other is followed at once', async (t) => {
  const refuses: Refusals = { modern: refusal(404, -32601) }
  const { url } = await endpoint(t, refuses)
  const upstream = eraUpstream(t, url, new ManualClock())
  await upstream.open(modern(), never)
  refuses.legacy = versionError
  delete refuses.modern
  for (const caller of [modern(), legacy()]) assert.equal(eraOf(await upstream.open(caller, never)), 'modern')
  assert.deepEqual(spoken(upstream), [false, true])
})

test('an era that the config names is not questioned', async (t) => {
  const { url, came } = await endpoint(t, { modern: refusal(404, -32601) })
  const old = eraUpstream(t, url, new ManualClock(7), 'legacy')
  await old.open(modern(), never)
  assert.deepEqual(old.eras(), { legacy: { speaks: true, decidedBy: 'config', at: 7 } })
  assert.equal(came[0]?.body.method, 'initialize')
  const recent = eraUpstream(t, url, new ManualClock(7), 'modern')
  await assert.rejects(recent.open(legacy(), never), { reason: 'upstream_refused' })
  assert.deepEqual(Object.keys(recent.eras()), ['modern'])
})
