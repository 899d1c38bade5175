import assert from 'node:assert/strict'
import { Writable } from 'node:stream'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { gatewayError } from '../../src/mesh/errors.ts'
import { Outbox } from '../../src/upstreams/stdio/outbox.ts'

/** A stream whose reader takes a chunk on request of the test. */
function slowStream() {
  const written: string[] = []
  let take: (() => void) | undefined
  const stream = new Writable({
    highWaterMark: 8,
    write(chunk: Buffer, _, done) {
      written.push(chunk.toString())
      take = done
    },
  })
  const read = async () => {
    take?.()
    await setImmediate()
  }
  return { stream, written, read }
}

function settled(promise: Promise<void>): { done: boolean } {
  const state = { done: false }
  const mark = () => void (state.done = true)
  promise.then(mark, mark)
  return state
}

test('a text is one line, whatever white space it has', async () => {
  const { stream, written } = slowStream()
  const outbox = new Outbox(stream)
  void outbox.send('{\r\n  "a":\n1}')
  await setImmediate()
  assert.deepEqual(written, ['{   "a": 1}\n'])
})

test('a full stream holds back the next text until it has room', async () => {
  const { stream, written, read } = slowStream()
  const outbox = new Outbox(stream)
  const first = settled(outbox.send('"first text"'))
  const second = settled(outbox.send('"second text"'))
  await setImmediate()
  assert.deepEqual([written.length, first.done, second.done], [1, false, false])
  await read()
  assert.deepEqual([written.length, first.done, second.done], [2, true, false])
  await read()
  assert.equal(second.done, true)
})

test('a text that waits can be taken back, and is never written', async () => {
  const { stream, written, read } = slowStream()
  const outbox = new Outbox(stream)
  const caller = new AbortController()
  let touched = false
  void outbox.send('"first text"')
  const second = outbox.send('"second text"', { signal: caller.signal, onWrite: () => (touched = true) })
  const third = settled(outbox.send('"third text"'))
  const reason = gatewayError('cancelled', 'changed my mind')
  caller.abort(reason)
  await assert.rejects(second, (error) => error === reason)
  await read()
  await read()
  assert.deepEqual(written, ['"first text"\n', '"third text"\n'])
  assert.equal(touched, false)
  assert.equal(third.done, true)
})

test('taking back a written text changes nothing', async () => {
  const { stream, written, read } = slowStream()
  const outbox = new Outbox(stream)
  const caller = new AbortController()
  const first = outbox.send('"first text"', { signal: caller.signal })
  caller.abort(gatewayError('cancelled', 'too late'))
  await read()
  await first
  assert.equal(written.length, 1)
})

test('the end rejects waiting texts, and all later texts', async () => {
  const { stream, written } = slowStream()
  const outbox = new Outbox(stream)
  void outbox.send('"first text"')
  const waiting = outbox.send('"second text"')
  outbox.end()
  await assert.rejects(waiting, { reason: 'upstream_disconnected' })
  await assert.rejects(outbox.send('"third text"'), { reason: 'upstream_disconnected' })
  assert.equal(written.length, 1)
})

test('texts waiting for a reader are bounded in number and bytes; texts taken back or written make room', async () => {
  const { stream, written, read } = slowStream()
  const outbox = new Outbox(stream)
  void outbox.send('the stream is full from here on')
  const large = 'x'.repeat(16 * 1024 ** 2)
  const takenBack = new AbortController()
  const waiting = outbox.send(large, { signal: takenBack.signal })
  void outbox.send(large).catch(() => undefined)
  await assert.rejects(outbox.send('one more'), { reason: 'overloaded', sent: false })
  takenBack.abort(gatewayError('cancelled', 'not needed'))
  await assert.rejects(waiting, { reason: 'cancelled' })
  const small = settled(outbox.send('one more'))
  for (let turn = 0; turn < 3; turn++) await read()
  assert.deepEqual([small.done, written.at(-1)], [true, 'one more\n'])
  for (let n = 0; n < 4_200; n++) void outbox.send('{}').catch(() => undefined)
  await assert.rejects(outbox.send('{}'), { reason: 'overloaded', message: /4096 of 4096 messages/ })
  outbox.end()
})
