import assert from 'node:assert/strict'
import { test } from 'node:test'
import { breaker } from '../../src/policies/breaker.ts'
import { testScope } from '../support/policy-context.ts'
import { bad, good, setUp, times } from './breaker/rig.ts'
import { toolCall } from '../support/caller.ts'

test('an open breaker says why, what comes next, and when', async () => {
  const { clock, send, sendAll } = setUp(
    { consecutive: 0, minimum: 20 },
    testScope({ server: 'search', tool: 'query' }),
  )
  await sendAll([...times(8, good), ...times(12, bad)])
  await clock.advance(1_800)
  assert.deepEqual(await send(good), {
    kind: 'rejected',
    by: 'breaker',
    error: {
      reason: 'breaker_open',
      code: 1503,
      retryable: true,
      message: 'breaker open for search/query (availability: 12 of 20 calls failed in 30s); next probe in 4s',
      sent: false,
      retryAfterMs: 3_200,
    },
  })
})

test('the requests of a server that are no calls of a listed tool share a breaker, which bears its name', async () => {
  const { send, sendAll } = setUp({}, testScope({ tool: undefined }))
  await sendAll(times(5, bad))
  const outcome = await send(good)
  assert.match(
    outcome.kind === 'rejected' ? outcome.error.message : '',
    /^breaker open for test \(5 failures/,
  )
})

test('replicas have a breaker each, which begins with their first call', async () => {
  const { context, send, state } = setUp({}, testScope({ replicas: 3 }))
  assert.equal(context.state.list('breaker').length, 0)
  for (const outcome of times(5, bad)) await send(outcome, 1)
  assert.equal((await send(good, 2)).kind, 'answered')
  assert.equal((await send(good, 1)).kind, 'rejected')
  assert.deepEqual([state(1), state(2), context.state.list('breaker').length], ['open', 'closed', 2])
})

test('a call that names no replica goes by the breaker of the first', async () => {
  const { send, sendAll } = setUp()
  await sendAll(times(5, bad))
  assert.equal((await send(good, 0)).kind, 'rejected')
})

test('a breaker outlives a rebuild with the same settings, and begins anew with others', async () => {
  const { context, config, sendAll } = setUp()
  await sendAll(times(5, bad))
  const after = async (settings: typeof config) => {
    const service = breaker.build(settings, context, testScope())(() => Promise.resolve(good))
    return (await service(toolCall('tool'))).kind
  }
  assert.equal(await after({ ...config }), 'rejected')
  assert.equal(await after({ ...config, open: 4_000 }), 'answered')
})

test('each policy set has breakers of its own', async () => {
  const { context, config, sendAll } = setUp()
  await sendAll(times(5, bad))
  const other = breaker.build(config, context, testScope({ set: 'cautious' }))(() => Promise.resolve(good))
  assert.equal((await other(toolCall('tool'))).kind, 'answered')
})

test('each change of state is reported, with its cause', async () => {
  const { clock, events, send, sendAll } = setUp({}, testScope({ set: 'cautious', tool: 'query' }))
  await sendAll(times(5, bad))
  await clock.advance(5_000)
  await send(bad)
  await clock.advance(10_000)
  await send(good)
  const told = (state: string, dimension: string, why: string, openForMs?: number) => ({
    type: 'breaker',
    set: 'cautious',
    server: 'test',
    tool: 'query',
    detail: { replica: 0, state, dimension, why, openForMs },
  })
  assert.deepEqual(events, [
    told('open', 'consecutive', '5 failures in a row', 5_000),
    told('half_open', 'probe', '5 failures in a row'),
    told('open', 'probe', 'a probe failed', 10_000),
    told('half_open', 'probe', 'a probe failed'),
    told('closed', 'probe', 'recovered'),
  ])
})

test('a breaker is on without any settings, and refuses contradictory settings', () => {
  assert.deepEqual(breaker.schema.parse({}), {
    window: 30_000,
    ratio: 0.5,
    minimum: 10,
    consecutive: 5,
    open: 5_000,
    maxOpen: 60_000,
    jitter: 0.2,
    probes: 1,
    probeTimeout: 30_000,
    slow: false,
    correctness: { ratio: 0.5, minimum: 10 },
  })
  assert.deepEqual(breaker.schema.parse({ slow: { over: '2s' } }).slow, { over: 2_000, ratio: 0.5 })
  const refused = breaker.schema.safeParse({ open: '2m' })
  assert.equal(refused.error?.issues[0]?.message, '`open` may be at most `maxOpen`')
  for (const wrong of [
    { ratio: 0 },
    { ratio: 1.1 },
    { minimum: 0 },
    { probes: 0 },
    { jitter: 2 },
    { slow: {} },
  ])
    assert.equal(breaker.schema.safeParse(wrong).success, false)
})
