import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { allLists, discovered, oneTool } from './discovered.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

test('a conversation that ends is noticed at once, not at the next ping', async () => {
  const { start, clock, upstream, told, asked } = discovered()
  await start()
  await clock.advance(1_000)
  asked()
  upstream.upstreamSession.end()
  await clock.advance(0)
  assert.equal(upstream.attempts, 2)
  assert.deepEqual(told, ['up', 'up'])
})

test('a server that ends every conversation is not asked in a frenzy', async () => {
  const { start, clock, upstream } = discovered((method, params, upstreamSession) => {
    setImmediate(() => upstreamSession.end())
    return oneTool(method, params, upstreamSession)
  })
  await start()
  for (let n = 0; n < 100; n++) await clock.advance(100)
  assert.ok(upstream.attempts >= 5 && upstream.attempts <= 12, `${upstream.attempts} conversations in 10 s`)
})

test('a suspicion triggers a look at once, and does nothing for a server that is down', async () => {
  const { start, clock, upstream, discovery, asked } = discovered()
  await start()
  asked()
  discovery.suspect()
  discovery.suspect()
  await clock.advance(0)
  assert.deepEqual(asked(), ['ping'])
  await clock.advance(1_000)
  upstream.refusal = unavailable
  upstream.upstreamSession.end()
  await clock.advance(0)
  const { attempts } = upstream
  for (let n = 0; n < 10; n++) {
    discovery.suspect()
    await clock.advance(10)
  }
  assert.equal(upstream.attempts, attempts)
})

test('a restart does not wait for the pause to end', async () => {
  const { start, clock, upstream, discovery } = discovered()
  upstream.refusal = unavailable
  await start()
  await clock.advance(3_000)
  const { attempts } = upstream
  discovery.run()
  await clock.advance(0)
  assert.equal(upstream.attempts, attempts + 1)
})

test('a refresh fetches all lists again at once', async () => {
  const { start, clock, discovery, asked } = discovered()
  await start()
  asked()
  discovery.refresh()
  await clock.advance(0)
  assert.deepEqual(asked(), allLists)
})

test('a removed server is not asked any more, and nobody is notified', async () => {
  const { start, clock, upstream, discovery, upstreamSessions, told } = discovered()
  await start()
  discovery.stop()
  await upstreamSessions.closeAll()
  await clock.advance(1_000_000)
  assert.equal(upstream.attempts, 1)
  assert.deepEqual(told, ['up'])
  assert.equal(clock.pending, 0)
})

test('a server that is removed in the middle of a round is not told of either', async () => {
  const { start, clock, discovery, upstreamSessions, told, upstream } = discovered(
    () => new Promise(() => {}),
  )
  await start()
  discovery.stop()
  await upstreamSessions.closeAll()
  await clock.advance(1_000_000)
  assert.deepEqual(told, [])
  assert.equal(upstream.attempts, 1)
  assert.equal(clock.pending, 0)
})
