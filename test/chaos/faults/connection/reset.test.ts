import assert from 'node:assert/strict'
import { test } from 'node:test'
import { reset } from '../../../../src/chaos/faults/connection/reset.ts'
import type { Call, Outcome } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText } from '../../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { answering, testShot, type TestShotParts } from '../../../support/shot.ts'

const text = notificationText('notifications/message', { level: 'info', data: 'working' })
const message = { text, value: JSON.parse(text) as Record<string, unknown> }
const answer = answering({ content: [] })

/** A server that streams: three messages of the same size, then its answer, unless it is told to stop. */
function streaming(seen: Call[]): (call: Call) => Promise<Outcome> {
  return (call) => {
    seen.push(call)
    call.channel.open()
    for (let i = 0; i < 3 && !call.signal.aborted; i++) void call.channel.send(message)
    if (!call.signal.aborted) return answer(call)
    return Promise.resolve({ kind: 'failed', error: call.signal.reason as GatewayError })
  }
}

function run(config: unknown, server: (call: Call) => Promise<Outcome>, parts?: TestShotParts) {
  const shot = testShot(parts)
  const channel = new TestChannel()
  const signal = new Cancellation()
  const call = toolCall('echo', {}, { channel, signal })
  const outcome = reset.layer(reset.schema.parse(config), shot)(server)(call)
  return { shot, channel, signal, outcome }
}

const errorOf = (outcome: Outcome) => (outcome.kind === 'failed' ? outcome.error : undefined)

test('the server runs the call, and its answer is lost', async () => {
  let runs = 0
  const { outcome, shot } = run({}, (call) => (runs++, answer(call)))
  const error = errorOf(await outcome)
  assert.equal(runs, 1)
  assert.equal(error?.reason, 'upstream_disconnected')
  assert.equal(error?.message, 'the connection broke (ECONNRESET)')
  assert.equal(error?.sent, true)
  assert.deepEqual(shot.notes, [{ effect: 'reset', bytes: 0 }])
})

test('before the headers not even the first message of a stream gets through, and the exchange is cancelled', async () => {
  const seen: Call[] = []
  const { outcome, channel, signal } = run({ at: 'headers' }, streaming(seen))
  assert.equal(errorOf(await outcome)?.sent, true)
  assert.equal(channel.opened, false)
  assert.equal(channel.received.length, 0)
  assert.equal(seen[0]?.signal.aborted, true)
  assert.equal(signal.aborted, false)
})

test('after so many bytes, messages get through as long as they lie before the break', async () => {
  const size = Buffer.byteLength(text)
  const { outcome, channel, shot } = run({ at: { afterBytes: 2 * size } }, streaming([]))
  assert.equal(errorOf(await outcome)?.reason, 'upstream_disconnected')
  assert.equal(channel.opened, true)
  assert.equal(channel.received.length, 2)
  assert.deepEqual(shot.notes, [{ effect: 'reset', bytes: 2 * size }])
})

test('a reply that is over before the break arrives, and the journal says so', async () => {
  const { outcome, channel, shot } = run({ at: { afterBytes: '1MiB' } }, streaming([]))
  assert.equal((await outcome).kind, 'answered')
  assert.equal(channel.received.length, 3)
  assert.match(shot.inapplicable[0] ?? '', /^the reply has \d+ bytes only$/)
})

test('a call that fails by itself keeps its own error', async () => {
  const error = gatewayError('upstream_unavailable', 'gone')
  const { outcome, shot } = run({}, () => Promise.resolve({ kind: 'failed', error }))
  assert.equal(errorOf(await outcome), error)
  assert.equal(shot.inapplicable.length, 1)
})

test('when the fault ends meanwhile, all of the reply arrives', async () => {
  const shot = testShot()
  const service = reset.layer(reset.schema.parse({}), shot)((call) => (shot.release(), answer(call)))
  assert.equal((await service(toolCall('echo'))).kind, 'answered')
  assert.deepEqual([shot.notes, shot.inapplicable], [[], []])
})

test('the caller can still give up', async () => {
  const reason = gatewayError('cancelled', 'not needed')
  const { outcome, signal } = run({}, (call) => {
    return new Promise((resolve) => {
      call.signal.addEventListener('abort', () => {
        resolve({ kind: 'failed', error: call.signal.reason as GatewayError })
      })
    })
  })
  signal.abort(reason)
  assert.equal(errorOf(await outcome), reason)
})

test("on the agent's side its own connection breaks, though the call has run", async () => {
  const { outcome, shot } = run({}, answer, { side: 'client' })
  assert.deepEqual((await outcome).wire, { end: 'reset' })
  assert.deepEqual(shot.disconnects, ['the connection broke (ECONNRESET)'])
})

test('bytes are whole and not negative', () => {
  assert.deepEqual(reset.schema.parse({}), { at: 'headers' })
  for (const afterBytes of [-1, 1.5, '1.5B', '300MiB', 'many'])
    assert.equal(reset.schema.safeParse({ at: { afterBytes } }).success, false, String(afterBytes))
})
