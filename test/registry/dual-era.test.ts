import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Caller } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { Era } from '../../src/protocol/versions.ts'
import type { Eras, UpstreamSession, Upstream } from '../../src/upstreams/upstream.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import type { ManualClock } from '../support/manual-clock.ts'
import { initializeResult, ScriptedSession, ScriptedUpstream } from '../support/scripted-upstream.ts'
import { testServer } from './test-server.ts'

const versions = { legacy: '2025-11-25', modern: '2026-07-28' }

/** An endpoint of both eras, or of the eras that a test allows, with separate tools in each. */
class DualUpstream extends ScriptedUpstream implements Upstream {
  readonly spoken = new Set<Era>(['legacy', 'modern'])
  readonly tools: Record<Era, readonly string[]> = { legacy: ['old'], modern: ['new'] }
  readonly #known = new Map<Era, boolean>()

  override open(caller: Caller): Promise<UpstreamSession> {
    this.attempts++
    const own = caller.era
    const era = this.spoken.has(own) ? own : own === 'modern' ? 'legacy' : 'modern'
    this.#known.set(own, era === own).set(era, true)
    const said = initializeResult(undefined, { protocolVersion: versions[era] })
    const upstreamSession = new ScriptedSession(caller, said, (method) => {
      const tools = this.tools[era].map((name) => ({ name }))
      const lists = { tools, prompts: [], resources: [], resourceTemplates: [] }
      return { result: method.endsWith('/list') ? lists : {} }
    })
    upstreamSession.keepsState = era === 'legacy'
    this.upstreamSessions.push(upstreamSession)
    return Promise.resolve(upstreamSession)
  }

  eras(): Eras {
    const verdicts = [...this.#known].map(([era, speaks]) => [era, { speaks, decidedBy: 'probe', at: 0 }])
    return Object.fromEntries(verdicts) as Eras
  }
}

async function dual(count = 1, spoken: readonly Era[] = ['legacy', 'modern']) {
  const replicas = Array.from({ length: count }, () => new DualUpstream())
  for (const { spoken: eras } of replicas)
    for (const era of [...eras]) if (!spoken.includes(era)) eras.delete(era)
  const found = testServer({}, replicas)
  await found.start()
  const listed = (era: Era) => found.server.entries('tools', era).map(({ key }) => key)
  return { ...found, replicas, upstream: replicas[0]!, listed }
}

/** Runs everything due now, and the follow-ups. */
async function turns(clock: ManualClock): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await clock.advance(0)
}

const legacy = () => new TestCaller()
const modern = () => new TestCaller({ era: 'modern' })

test('each era lists the server’s offers in this era, and the legacy list is not fetched before needed', async () => {
  const { server, clock, upstream, listed, changes } = await dual()
  assert.deepEqual([listed('modern'), upstream.attempts], [['new'], 1])
  await Promise.all([server.settledFor('legacy'), server.settledFor('legacy'), turns(clock)])
  assert.deepEqual([listed('modern'), listed('legacy'), upstream.attempts], [['new'], ['old'], 2])
  assert.ok(server.facts('old') !== undefined && server.facts('new') !== undefined)
  changes.length = 0
  upstream.tools.legacy = ['older']
  upstream.upstreamSession.say({ method: 'notifications/tools/list_changed' })
  await clock.advance(250)
  assert.deepEqual([listed('modern'), listed('legacy'), changes], [['new'], ['older'], [['tools']]])
  await server.close()
  assert.equal(clock.pending, 0)
})

test('a server of one era has one list for all, and is asked for another one once', async () => {
  const { server, clock, upstream, listed } = await dual(1, ['modern'])
  for (let round = 0; round < 3; round++) {
    await Promise.all([server.settledFor('legacy'), turns(clock)])
    assert.deepEqual([listed('legacy'), upstream.attempts], [['new'], 2])
  }
  assert.equal(server.upstreamSessions.size, 1)
  const old = await dual(1, ['legacy'])
  await old.server.settledFor('legacy')
  assert.deepEqual([old.listed('legacy'), old.upstream.attempts], [['old'], 1])
})

test('sessions of the legacy era have a home, and modern callers of the same server may go anywhere', async () => {
  const { server } = await dual(2)
  const [old, recent] = [legacy(), modern()]
  await server.send({ ...toolCall('a', {}, { caller: old }), replica: 1 })
  await server.send({ ...toolCall('a', {}, { caller: recent }), replica: 1 })
  assert.deepEqual([server.home(old), server.home(recent)], [1, undefined])
  assert.deepEqual(server.homes(legacy()), [0, 1])
  assert.equal(server.homes(recent), undefined)
})

test('a caller is at home with its session, after any first replica', async () => {
  const { server, replicas } = await dual(2)
  replicas[0]!.spoken.delete('legacy')
  const caller = legacy()
  for (const replica of [0, 1]) await server.send({ ...toolCall('a', {}, { caller }), replica })
  assert.equal(server.home(caller), 1)
})

test('the era is that of the conversation, or else the one to be expected', async () => {
  const { server } = await dual()
  assert.deepEqual([server.eraFor(modern(), 0), server.onlyEra], ['modern', undefined])
  const caller = legacy()
  await server.send(toolCall('a', {}, { caller }))
  assert.deepEqual([server.eraFor(caller, 0), server.eraFor(modern(), undefined)], ['legacy', 'modern'])
  assert.equal(server.onlyEra, undefined, 'the answer depends on the caller')
  const one = await dual(1, ['legacy'])
  assert.deepEqual([one.server.onlyEra, one.server.eraFor(modern(), 0)], ['legacy', 'legacy'])
})

test('a conversation that the server refuses to open again is left, and the next call begins another', async () => {
  const upstream = new ScriptedUpstream(() =>
    gatewayError('upstream_refused', 'the session is not opened again'),
  )
  const { server } = testServer({}, [upstream])
  const caller = legacy()
  const send = () => server.send(toolCall('a', {}, { caller }))
  await send()
  assert.equal(upstream.upstreamSession.ended.aborted, true)
  await send()
  assert.equal(upstream.attempts, 2)
})
