import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { keepAlive, systemClock } from '../../src/mesh/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Tracks the state of a promise. */
function watch(promise: Promise<unknown>): { state: string; reason: unknown } {
  const seen: { state: string; reason: unknown } = { state: 'pending', reason: undefined }
  promise.then(
    () => (seen.state = 'resolved'),
    (reason: unknown) => Object.assign(seen, { state: 'rejected', reason }),
  )
  return seen
}

test('a sleep ends at its time and not before', async () => {
  const clock = new ManualClock()
  const seen = watch(clock.sleep(100, new Cancellation()))
  await clock.advance(99)
  assert.equal(seen.state, 'pending')
  await clock.advance(1)
  assert.equal(seen.state, 'resolved')
})

test('an abort wakes a sleeper with its reason, and takes the timer back', async () => {
  const clock = new ManualClock()
  const signal = new Cancellation()
  const seen = watch(clock.sleep(100, signal))
  signal.abort('enough')
  await clock.advance(0)
  assert.deepEqual(seen, { state: 'rejected', reason: 'enough' })
  assert.equal(clock.pending, 0)
})

test('a sleep under a signal that aborted before does not begin', async () => {
  const clock = new ManualClock()
  const signal = new Cancellation()
  signal.abort('too late')
  const seen = watch(clock.sleep(100, signal))
  assert.equal(clock.pending, 0)
  await clock.advance(0)
  assert.deepEqual(seen, { state: 'rejected', reason: 'too late' })
})

test('a sleep that ended leaves no listener behind', async () => {
  const clock = new ManualClock()
  const listeners = new Set<() => void>()
  const signal = {
    aborted: false,
    reason: undefined,
    addEventListener: (_: 'abort', listener: () => void) => void listeners.add(listener),
    removeEventListener: (_: 'abort', listener: () => void) => void listeners.delete(listener),
  }
  void clock.sleep(10, signal)
  assert.equal(listeners.size, 1)
  await clock.advance(10)
  assert.equal(listeners.size, 0)
})

test("the platform's own signals wake a sleeper, too", async () => {
  const clock = new ManualClock()
  const controller = new AbortController()
  const seen = watch(clock.sleep(100, controller.signal))
  controller.abort('enough')
  await clock.advance(0)
  assert.deepEqual(seen, { state: 'rejected', reason: 'enough' })
})

test("the machine's monotonic clock never goes back, and its wall clock counts from 1970", () => {
  let last = systemClock.now()
  for (let i = 0; i < 1_000; i++) {
    const now = systemClock.now()
    assert.ok(now >= last)
    last = now
  }
  assert.ok(systemClock.wall() > Date.UTC(2024, 0, 1))
})

test('the clock runs a task once, unless cancelled', async (t) => {
  t.after(keepAlive())
  const ran: string[] = []
  const cancel = systemClock.after(1, () => ran.push('cancelled'))
  cancel()
  cancel()
  await new Promise<void>((resolve) => systemClock.after(2, resolve))
  await systemClock.sleep(1, new Cancellation())
  assert.deepEqual(ran, [])
})

test('a timer of the machine’s clock is never early, at any fraction of a millisecond', async (t) => {
  t.after(keepAlive())
  const early: string[] = []
  for (let round = 0; round < 100; round++) {
    const from = systemClock.now()
    while (systemClock.now() - from < (round % 10) / 10);
    await Promise.all(
      [0, 0.3, 1, 1.9, 2.5].map(async (ms) => {
        const begun = systemClock.now()
        await systemClock.sleep(ms, new Cancellation())
        const tookMs = systemClock.now() - begun
        if (tookMs < ms) early.push(`${tookMs} of ${ms} ms`)
      }),
    )
  }
  assert.deepEqual(early, [])
})

test('a timer takes its longest time without firing early', async (t) => {
  t.after(keepAlive())
  let fired = false
  const cancel = systemClock.after(2 ** 31 - 1, () => (fired = true))
  await systemClock.sleep(5, new Cancellation())
  cancel()
  assert.equal(fired, false)
})

test('a timer does not keep the process alive', async () => {
  const module = new URL(import.meta.url.replace(/test\/mesh\/clock\.test/, 'src/mesh/clock'))
  const script = `import { keepAlive, systemClock } from '${module.href}'; systemClock.after(3_600_000, () => {}); console.log('over')`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script])
  assert.equal(stdout, 'over\n')
})

/** A pair of connected sockets. */
async function pair(t: TestContext): Promise<readonly [Socket, Socket]> {
  const server = createServer()
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.after(() => server.close())
  const near = connect((server.address() as AddressInfo).port, '127.0.0.1')
  t.after(() => near.destroy())
  const [[far]] = (await Promise.all([once(server, 'connection'), once(near, 'connect')])) as [
    [Socket],
    unknown,
  ]
  t.after(() => far.destroy())
  return [near, far]
}

/** Blocks the event loop for `ms` milliseconds. */
function stall(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

test('input received while the event loop stood still comes before limits reached meanwhile', async (t) => {
  const [near, far] = await pair(t)
  const order: string[] = []
  near.on('data', () => order.push('answer'))
  const met = ['first limit', 'second limit'].map(
    (limit) =>
      new Promise<void>((resolve) => {
        systemClock.after(20, () => {
          order.push(limit)
          resolve()
        })
      }),
  )
  far.write('an answer')
  stall(300)
  await Promise.all([...met, once(near, 'data')])
  assert.deepEqual(order, ['answer', 'first limit', 'second limit'])
})

test('a limit that is late can be taken back by what came before it', async (t) => {
  const [near, far] = await pair(t)
  const cancel = systemClock.after(20, () => assert.fail('the limit was met'))
  const answered = once(near, 'data').then(cancel)
  far.write('an answer')
  stall(300)
  await answered
  await systemClock.sleep(20, new Cancellation())
})
