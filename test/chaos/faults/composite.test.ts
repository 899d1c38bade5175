import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compositeFaults } from '../../../src/chaos/faults/composite.ts'
import { replay } from '../../../src/chaos/journal/explain.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testInjection } from '../../support/injection.ts'
import { fault, rig } from '../rig.ts'

const domain = compositeFaults.failure_domain
const storm = compositeFaults['retry.storm']
const answer = answering({ content: [] })

const reasonOf = (outcome: Outcome) => (outcome.kind === 'failed' ? outcome.error.reason : outcome.kind)

test('a call at the head of the line delays undrawn calls behind, at its own server only', async () => {
  const { arm, send, clock, controller, tally } = rig()
  arm([fault('queue', 'hol.block', { hold: '2s', when: { onCall: 2 }, maxInjections: 1 })])
  const ended: string[] = []
  const call = (name: string, server = 's') =>
    void send(toolCall('t', {}, { server })).then(() => ended.push(name))
  for (const name of ['before', 'head', 'behind']) call(name)
  call('elsewhere', 'other')
  await clock.advance(1_999)
  assert.deepEqual(ended, ['before', 'elsewhere'])
  await clock.advance(1)
  assert.deepEqual(ended, ['before', 'elsewhere', 'head', 'behind'])
  call('after')
  await clock.advance(0)
  assert.equal(ended.at(-1), 'after')
  assert.equal(tally('queue').hits, 2)
  const decisions = controller.journal.decisions()
  assert.deepEqual(
    decisions.map(({ decision, isCaught }) => [decision, isCaught]),
    [
      ['not_injected', undefined],
      ['injected', undefined],
      ['injected', true],
      ['not_injected', undefined],
      ['not_injected', undefined],
    ],
  )
  const { seed, faults } = controller.config
  assert.deepEqual(replay({ seed, faults }, decisions).differing, [])
})

test('all servers of a failure domain refuse connections: nothing was sent', async () => {
  const injection = testInjection()
  const service = domain.layer(domain.schema.parse({}), injection)(() => assert.fail('must not be sent'))
  for (const server of ['a', 'b']) {
    const outcome = await service(toolCall('search', {}, { server }))
    assert.equal(reasonOf(outcome), 'upstream_unavailable')
    assert.equal(outcome.kind === 'failed' && outcome.error.sent, false)
  }
})

test('an agent loses its connection when the domain is down', async () => {
  const injection = testInjection({ side: 'client' })
  const outcome = await domain.layer(domain.schema.parse({}), injection)(answer)(toolCall('search'))
  assert.deepEqual(outcome.wire, { end: 'reset' })
})

test('outages come and go for all servers together', async () => {
  const injection = testInjection()
  const service = domain.layer(domain.schema.parse({ down: '10s', up: '30s' }), injection)(answer)
  const kinds = async () => [
    reasonOf(await service(toolCall('x', {}, { server: 'a' }))),
    reasonOf(await service(toolCall('x', {}, { server: 'b' }))),
  ]
  const seen: string[][] = []
  for (const ms of [0, 9_999, 1, 29_999, 1]) {
    await injection.clock.advance(ms)
    seen.push(await kinds())
  }
  const down = ['upstream_unavailable', 'upstream_unavailable']
  const up = ['answered', 'answered']
  assert.deepEqual(seen, [down, down, up, up, down])
  assert.equal(injection.inapplicable[0], 'the servers work for another 30s')
})

test('the first attempts of each call fail with 503, and then one passes', async () => {
  const injection = testInjection()
  const service = storm.layer(storm.schema.parse({}), injection)(answer)
  const kinds: string[] = []
  for (const attempt of [1, 2, 3]) kinds.push((await service(toolCall('search', {}, { attempt }))).kind)
  assert.deepEqual(kinds, ['failed', 'failed', 'answered'])
  assert.deepEqual(
    injection.replies.map(({ status }) => status),
    [503, 503],
  )
  // A JSON-RPC body would be an answer, so the gateway would not retry.
  assert.equal(injection.replies[0]?.headers['content-type'], 'text/plain')
  assert.equal(injection.inapplicable.length, 1)
})

test('without HTTP, the first attempts find no server', async () => {
  const injection = testInjection({
    faultEnvironment: { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) },
  })
  const outcome = await storm.layer(storm.schema.parse({}), injection)(answer)(toolCall('search'))
  assert.equal(reasonOf(outcome), 'upstream_unavailable')
  assert.deepEqual(injection.replies, [])
})

test('only the gateway tells attempts apart, so only the gateway side can be stormed', () => {
  assert.deepEqual(storm.sides, ['upstream'])
})
