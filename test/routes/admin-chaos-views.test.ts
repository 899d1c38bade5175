import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../support/caller.ts'
import { chaosApp, failing } from './chaos-app.ts'

/** An app whose plan is armed. */
function armed(faults: readonly object[], more: object = {}) {
  const app = chaosApp({ config: { faults, ...more } })
  app.controller.arm('me', 'a test')
  return app
}

test('the journal is read page by page, from the last position', async () => {
  const { ask, send } = armed([failing('a')])
  for (let number = 0; number < 3; number++) await send(toolCall('t'))
  const latest = await ask('GET', '/admin/chaos/journal?limit=2')
  assert.equal(latest.body.entries.length, 2)
  assert.equal(latest.body.more, false)
  const first = await ask('GET', '/admin/chaos/journal?since=0&limit=3')
  assert.deepEqual([first.body.entries[0].type, first.body.more, first.body.oldest], ['armed', true, 1])
  const rest = await ask('GET', `/admin/chaos/journal?since=${first.body.next}`)
  assert.deepEqual([rest.body.entries.length, rest.body.more], [1, false])
  const none = await ask('GET', `/admin/chaos/journal?since=${rest.body.next}`)
  assert.deepEqual([none.body.entries, none.body.next], [[], rest.body.next])
})

test('a query that makes no sense is refused with the bound', async () => {
  const { ask } = chaosApp()
  for (const query of ['limit=0', 'limit=many', 'since=-1', 'limits=1'])
    assert.equal((await ask('GET', `/admin/chaos/journal?${query}`)).status, 400, query)
  assert.equal((await ask('GET', '/admin/chaos/explain')).status, 400)
  const { body } = await ask('GET', '/admin/chaos/plan?last=soon')
  assert.match(String(body.findings[0].message), /expected a duration .* found "soon"/)
})

test('header values that a fault matches are not shown', async () => {
  const match = { header: { authorization: 'secret*' } }
  const { ask, controller } = armed([failing('a', { match })])
  const config = { type: 'rpc.error', rate: 1, match }
  assert.equal((await ask('POST', '/chaos/inject', { target: '*', config })).status, 200)
  assert.match(JSON.stringify(controller.status()), /secret/)
  for (const path of ['/admin/chaos', '/admin/chaos/journal', '/chaos/status']) {
    const { body } = await ask('GET', path)
    assert.doesNotMatch(JSON.stringify(body), /secret/, path)
    assert.match(JSON.stringify(body), /redacted/, path)
  }
})

test('a call that was hit and one that was not are explained in words', async () => {
  const never = failing('never', { rate: 0 })
  const third = failing('third', { when: { onCall: 3 } })
  const { ask, send } = armed([failing('always', { match: { tool: 't' } }), never, third])
  await send(toolCall('t', {}, { id: 'one' }))
  const { body } = await ask('GET', '/admin/chaos/explain?call=one')
  const words = (body.decisions as readonly { words: string }[]).map((decision) => decision.words)
  assert.match(
    words[0]!,
    /^always \(rpc\.error, upstream side\), attempt 1 at test\/t: hit: the draw 0\.\d+ is below the rate 1;/,
  )
  assert.match(words[0]!, /surfaced: the agent was told$/)
  assert.match(words[1]!, /^never .*: not hit: the draw 0\.\d+ is not below the rate 0$/)
  assert.match(words[2]!, /not hit: its schedule leaves out matching call 1, 0ms after arming/)
  assert.equal(typeof body.decisions[0].u, 'number')
})

test('a call is explained by its callKey and by its intent too', async () => {
  const { ask, send } = armed([failing('a')])
  await send(toolCall('t', {}, { params: { name: 't', _meta: { 'dev.breakwater/intent': 'book it' } } }))
  const byIntent = await ask('GET', '/admin/chaos/explain?call=book%20it')
  const { callKey } = byIntent.body.decisions[0]
  const byKey = await ask('GET', `/admin/chaos/explain?call=${encodeURIComponent(String(callKey))}`)
  assert.deepEqual(byKey.body.decisions, byIntent.body.decisions)
  assert.equal((await ask('GET', '/admin/chaos/explain?call=nobody')).status, 404)
})

test('writes, limits and shadow mode are explained as what they are', async () => {
  const writing = chaosApp({ effectOf: () => 'write', config: { faults: [failing('a')] } })
  writing.controller.arm('me', 'a test')
  await writing.send(toolCall('t', {}, { id: 'w' }))
  const { body } = await writing.ask('GET', '/admin/chaos/explain?call=w')
  assert.match(String(body.decisions[0].words), /not known to be read-only and allowWrites is false/)
  const limited = armed([failing('a', { maxInjections: 1 })], { mode: 'shadow' })
  for (const id of ['x', 'y']) await limited.send(toolCall('t', {}, { id }))
  const wordsOf = async (id: string) =>
    String((await limited.ask('GET', `/admin/chaos/explain?call=${id}`)).body.decisions[0].words)
  assert.match(await wordsOf('x'), /in shadow mode nothing is done/)
  assert.match(await wordsOf('y'), /maxInjections is used up/)
})

test('shadow mode counts its would-be hits by fault and target over a span of time', async () => {
  const { ask, send, clock } = armed([failing('a'), failing('b', { rate: 0 })], { mode: 'shadow' })
  await send(toolCall('old'))
  await clock.advance(600_000)
  await send(toolCall('t'))
  await send(toolCall('t', {}, { server: 'other' }))
  const { body } = await ask('GET', '/admin/chaos/plan?last=5m')
  assert.deepEqual([body.mode, body.complete, body.to - body.from], ['shadow', true, 300_000])
  const [a, b] = body.faults
  assert.deepEqual([a.fault, a.decided, a.hit, a.wouldHit, a.because], ['a', 2, 0, 2, { shadow: 2 }])
  assert.deepEqual(a.targets, [
    { server: 'test', tool: 't', decided: 1, hit: 0, wouldHit: 1 },
    { server: 'other', tool: 't', decided: 1, hit: 0, wouldHit: 1 },
  ])
  assert.deepEqual([b.hit, b.wouldHit, b.because], [0, 0, { rate: 2 }])
})
