import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../../src/mesh/call.ts'
import { TestChannel } from '../../support/caller.ts'
import { errorOf, keyed, leaving, read, setUp } from './keyed.ts'

const progress: Message = { text: '{}', value: { method: 'notifications/progress' } }

test('a caller that goes does not end the call: its next try joins the one that runs', async () => {
  const { clock, server, send } = setUp()
  const { call, leave } = leaving('k')
  const first = send(call)
  leave()
  await clock.advance(0)
  assert.equal(errorOf(first)?.reason, 'cancelled')
  assert.equal(errorOf(first)?.sent, true)
  assert.equal(server.calls[0]?.signal.aborted, false)
  const again = send(keyed('k', { id: 'again' }))
  await clock.advance(0)
  server.answer(0)
  await clock.advance(0)
  assert.equal(server.calls.length, 1)
  assert.deepEqual(read(again), { id: 'again', result: { n: 0 }, valueId: 'again' })
})

test('the answer to a call whose caller has gone is kept for its next request', async () => {
  const { clock, server, send } = setUp()
  const { call, leave } = leaving('k')
  send(call)
  leave('deadline_exceeded')
  await clock.advance(10_000)
  server.answer(0)
  await clock.advance(0)
  const again = send(keyed('k'))
  await clock.advance(0)
  assert.ok(read(again))
  assert.equal(server.calls.length, 1)
})

test('a joined caller that leaves ends only its own waiting', async () => {
  const { clock, server, send } = setUp()
  const first = send(keyed('k'))
  const { call, leave } = leaving('k')
  const second = send(call)
  await clock.advance(0)
  leave()
  await clock.advance(0)
  assert.equal(errorOf(second)?.reason, 'cancelled')
  assert.equal(first.outcome, undefined)
  server.answer(0)
  await clock.advance(0)
  assert.ok(read(first))
})

test('a caller that leaves while its call waits for a turn is told that the call may run, and the call runs', async () => {
  const { clock, server, send } = setUp()
  const [first, second] = [leaving('k'), leaving('k')]
  const sent = [send(first.call), send(second.call)]
  server.calls[0]!.record.sent = false
  first.leave('deadline_exceeded')
  second.leave()
  await clock.advance(0)
  assert.deepEqual(
    sent.map((one) => [errorOf(one)?.reason, errorOf(one)?.sent]),
    [
      ['deadline_exceeded', true],
      ['cancelled', true],
    ],
  )
  assert.equal(server.calls[0]?.signal.aborted, false)
})

test('a caller that joins after giving up does not wait at all', async () => {
  const { clock, send } = setUp()
  send(keyed('k'))
  const { call, leave } = leaving('k')
  leave()
  const second = send(call)
  await clock.advance(0)
  assert.equal(errorOf(second)?.reason, 'cancelled')
})

test('only the limit ends the run, not even the deadline of the first caller', async () => {
  const { clock, server, send, snapshot } = setUp({ settings: { limit: '2m' } })
  const first = send(keyed('k', { deadline: { at: 1_000, reserveMs: 50 } }))
  assert.deepEqual(server.calls[0]?.deadline, { at: 120_000, reserveMs: 50, askedFor: false })
  await clock.advance(119_999)
  assert.equal(first.outcome, undefined)
  await clock.advance(1)
  assert.equal(errorOf(first)?.reason, 'deadline_exceeded')
  assert.match(errorOf(first)?.message ?? '', /within 2m/)
  assert.equal(snapshot().underWay, 0)
})

test('a run at the limit may have run, so the call does not run again', async () => {
  const { clock, server, send } = setUp({ settings: { limit: '1s' } })
  send(keyed('k'))
  await clock.advance(1_000)
  const again = send(keyed('k'))
  await clock.advance(0)
  assert.equal(errorOf(again)?.reason, 'deadline_exceeded')
  assert.equal(server.calls.length, 1)
})

test('messages before the answer reach the first caller while connected, and nobody afterwards', async () => {
  const { clock, server, send } = setUp()
  const [mine, theirs] = [new TestChannel(), new TestChannel()]
  const { call, leave } = leaving('k', { channel: mine })
  send(call)
  send(keyed('k', { channel: theirs }))
  const { channel } = server.calls[0]!
  channel.open()
  channel.pause(5)
  void channel.send(progress)
  leave()
  await clock.advance(0)
  channel.open()
  channel.pause(7)
  assert.equal(channel.send(progress), undefined)
  assert.equal(mine.received.length, 1)
  assert.deepEqual(mine.pauses, [5])
  assert.ok(mine.opened)
  assert.equal(theirs.received.length, 0)
  assert.equal(theirs.opened, false)
})

test('a server that asks an absent caller hears that the caller has gone', async () => {
  const { clock, server, send } = setUp()
  const { call, leave } = leaving('k')
  send(call)
  leave()
  await clock.advance(0)
  const answers: string[] = []
  const question: Message = { text: '{}', value: { method: 'elicitation/create', id: 1 } }
  void server.calls[0]!.channel.send(question, (text) => {
    answers.push(text)
    return Promise.reject(new Error('the server has gone too'))
  })
  await clock.advance(0)
  assert.deepEqual(JSON.parse(answers[0] ?? ''), {
    jsonrpc: '2.0',
    id: '',
    error: { code: 1499, message: 'the caller has gone' },
  })
})

test('when all is over, no timer and no listener is left', async () => {
  const { clock, server, send } = setUp({ settings: { limit: '5m' } })
  const { call, leave } = leaving('k')
  const first = send(call)
  server.answer(0)
  await clock.advance(300_000)
  assert.equal(clock.pending, 0)
  const { outcome } = first
  leave()
  await clock.advance(0)
  assert.equal(first.outcome, outcome)
})
