import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { TestChannel } from '../support/caller.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { isAlive } from '../support/processes.ts'
import { ask, open, pidOf, result, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

// Effects of faults on a child process and its output.

const progress = (token: number, count: number) =>
  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${count}}}`

/** An upstream session with a call under way, under its wire id; the call asks for progress. */
async function withCall(t: Parameters<typeof stdioUpstream>[0]) {
  const { log, lines } = recordedLog()
  const upstream = stdioUpstream(t, { log, maxReply: 2_000, sharing: 'per_session', era: 'legacy' })
  const session = await open(upstream)
  const channel = new TestChannel()
  const signal = new Cancellation()
  void ask(session, 'raw/late', { _meta: { progressToken: 'mine' } }, { channel, signal })
  t.after(() => signal.abort({ reason: 'cancelled', message: 'over' }))
  /** The handshake was request 1. */
  const write = (texts: readonly string[], over = new Cancellation()) =>
    upstream.write(Buffer.from(texts.map((text) => `${text}\n`).join('')), over)
  return { upstream, session, channel, lines, write }
}

const WIRE_ID = 2

test('output of a fault is read like output of the process: messages, noise, and lines that are too long', async (t) => {
  const { upstream, channel, lines, write } = await withCall(t)
  await write(['noise', progress(WIRE_ID, 1), 'x'.repeat(3_000), '[1]'])
  await upstream.write(Buffer.from([0xff, 0xfe, 0x0a]), new Cancellation())
  assert.equal(channel.of('notifications/progress').length, 1)
  const excerpts = lines.flatMap(({ excerpt }) => excerpt ?? [])
  // The log gets one excerpt a minute.
  assert.deepEqual(excerpts, ['noise'])
  assert.ok(lines.some(({ why }) => String(why).includes('larger than 2000 bytes')))
})

test("a slow reader holds up a fault's output like the process's, and nothing overtakes it", async (t) => {
  const { session, channel, lines, write } = await withCall(t)
  channel.hold()
  let isRead = false
  const reading = write([progress(WIRE_ID, 1), progress(WIRE_ID, 2)])?.then(() => (isRead = true))
  const real = result(ask(session, 'raw/say', { texts: [progress(WIRE_ID, 3)] }))
  await until('the first message has come', () => channel.of('notifications/progress').length === 1)
  let isAnswered = false
  void real.then(() => (isAnswered = true))
  // The process writes to stderr after its stdout message, which waits in the gateway.
  const said = ask(session, 'raw/stderr', { text: 'said\n' })
  await until('the process has written its line', () => lines.some(({ stderr }) => stderr === 'said'))
  assert.deepEqual([isRead, isAnswered, channel.of('notifications/progress').length], [false, false, 1])
  channel.release()
  await reading
  await Promise.all([real, said])
  const counts = channel
    .of('notifications/progress')
    .map(({ value }) => (value.params as { progress: number }).progress)
  assert.deepEqual(counts, [1, 2, 3])
})

test("nothing more of a fault's output is read once the fault is over", async (t) => {
  const { channel, write } = await withCall(t)
  channel.hold()
  const over = new Cancellation()
  const reading = write([progress(WIRE_ID, 1), progress(WIRE_ID, 2)], over)
  await until('the first message has come', () => channel.of('notifications/progress').length === 1)
  over.abort('over')
  channel.release()
  await reading
  assert.equal(channel.of('notifications/progress').length, 1)
})

test('a fault cannot write without a running process', (t) => {
  assert.equal(stdioUpstream(t).write(Buffer.from('x\n'), new Cancellation()), undefined)
})

test('a process that a fault has stopped goes on when it is to end, and ends with its input', async (t) => {
  // The clock stands still, so only the end of its input can end the process.
  const upstream = stdioUpstream(t, { clock: new ManualClock() })
  const pid = await pidOf(await open(upstream))
  assert.equal(upstream.signal('SIGSTOP'), true)
  await upstream.close()
  assert.equal(isAlive(pid), false)
})

test('a process that somebody else has stopped is woken by the signal that ends it', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  const pid = await pidOf(await open(upstream))
  process.kill(pid, 'SIGSTOP')
  const closing = upstream.close()
  await clock.advance(500)
  // The time between SIGTERM and SIGKILL does not pass.
  await closing
  assert.equal(isAlive(pid), false)
})

test('a process that is about to end is not stopped any more', async (t) => {
  const upstream = stdioUpstream(t, { clock: new ManualClock() })
  const pid = await pidOf(await open(upstream))
  const closing = upstream.close()
  upstream.signal('SIGSTOP')
  await closing
  assert.equal(isAlive(pid), false)
})

test('a process in a crash loop gets its signal when its time is over, and no signal after the loop', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock, sharing: 'per_session' })
  const over = new Cancellation()
  const loop = { signal: 'SIGKILL', afterMs: 5_000, over } as const
  upstream.crash(loop)
  const doomed = await open(upstream)
  upstream.crash(loop)
  assert.ok(await pidOf(doomed), 'a repeated loop changes nothing')
  await clock.advance(5_000)
  await until('the conversation has ended', () => doomed.ended.aborted)
  await until('the process is gone', () => upstream.processes() === 0)
  const spared = await open(upstream)
  over.abort('over')
  await clock.advance(5_000)
  assert.ok(await pidOf(spared))
  assert.ok(await pidOf(await open(upstream)))
})
