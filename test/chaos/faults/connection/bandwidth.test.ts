import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bandwidth, slowDrip } from '../../../../src/chaos/faults/connection/bandwidth.ts'
import type { Layer, Outcome } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText } from '../../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { answerOf, testShot, type TestShot, type TestShotParts } from '../../../support/shot.ts'

/** A JSON text of exactly so many bytes, not all of them ASCII. */
function padded(size: number, make: (pad: string) => string): string {
  const rest = size - Buffer.byteLength(make('é'))
  return make(`é${'x'.repeat(rest)}`)
}

const reply = (size: number) =>
  answerOf(
    padded(size, (pad) => `{"jsonrpc":"2.0","id":"c","result":{"pad":"${pad}"}}`),
    200,
  )

const message = (size: number) => {
  const text = padded(size, (data) => notificationText('notifications/message', { level: 'info', data }))
  return { text, value: JSON.parse(text) as Record<string, unknown> }
}

/** Runs a server that sends messages of these sizes, each when it may, and then a reply. */
async function run(
  fault: (shot: TestShot) => Layer,
  messages: number[],
  replySize: number,
  parts?: TestShotParts,
) {
  const shot = testShot(parts)
  const channel = new TestChannel()
  const signal = new Cancellation()
  const outcomes: Outcome[] = []
  const service = fault(shot)(async (call) => {
    for (const size of messages) await call.channel.send(message(size))
    return reply(replySize)
  })
  const ran = service(toolCall('echo', {}, { channel, signal })).then(
    (outcome) => void outcomes.push(outcome),
  )
  await shot.clock.advance(0)
  return { shot, channel, signal, outcomes, ran }
}

const thin = (shot: TestShot) => bandwidth.layer(bandwidth.schema.parse({}), shot)
const drip = (shot: TestShot) => slowDrip.layer(slowDrip.schema.parse({}), shot)

for (const side of ['upstream', 'client'] as const) {
  test(`a reply of 3 KiB takes three seconds over a wire of 1 KiB/s (${side})`, async () => {
    const { shot, outcomes } = await run(thin, [], 3 * 1024, { side })
    await shot.clock.advance(2_999)
    assert.equal(outcomes.length, 0)
    await shot.clock.advance(1)
    assert.deepEqual(outcomes, [reply(3 * 1024)])
    assert.deepEqual(shot.notes, [{ bytes: 3 * 1024, delayMs: 3_000 }])
  })
}

test('messages before the reply take their time too, and their sender has to wait', async () => {
  const { shot, channel, outcomes } = await run(thin, [512, 512], 1024)
  await shot.clock.advance(499)
  assert.equal(channel.received.length, 0)
  await shot.clock.advance(1)
  assert.equal(channel.received.length, 1)
  await shot.clock.advance(500)
  assert.equal(channel.received.length, 2)
  await shot.clock.advance(999)
  assert.equal(outcomes.length, 0)
  await shot.clock.advance(1)
  assert.equal(outcomes.length, 1)
})

test('messages arrive in order even when their sender does not wait', async () => {
  const shot = testShot()
  const channel = new TestChannel()
  const service = thin(shot)((call) => {
    for (const size of [300, 100, 200]) void call.channel.send(message(size))
    return Promise.resolve(reply(100))
  })
  const ran = service(toolCall('echo', {}, { channel }))
  await shot.clock.advance(0)
  await shot.clock.advance(1_000)
  assert.deepEqual(
    channel.received.map((one) => one.message.text),
    [300, 100, 200].map((size) => message(size).text),
  )
  assert.equal((await ran).kind, 'answered')
})

test('a drip has a gap between any two chunks: 16 bytes each 100 ms', async () => {
  for (const [size, ms] of [
    [80, 400],
    [81, 500],
  ] as const) {
    const { shot, outcomes } = await run(drip, [], size)
    await shot.clock.advance(ms - 1)
    assert.equal(outcomes.length, 0, String(size))
    await shot.clock.advance(1)
    assert.equal(outcomes.length, 1, String(size))
  }
})

test('when the fault ends, the rest comes at once', async () => {
  for (const fault of [thin, drip]) {
    const { shot, channel, outcomes, ran } = await run(fault, [2_000, 2_000], 100_000)
    await shot.clock.advance(10)
    shot.release()
    await ran
    assert.equal(channel.received.length, 2)
    assert.deepEqual(outcomes, [reply(100_000)])
    assert.equal(shot.clock.pending, 0)
  }
})

test('a caller that gives up waits no longer', async () => {
  for (const fault of [thin, drip]) {
    const { shot, signal, outcomes, ran } = await run(fault, [], 100_000)
    await shot.clock.advance(10)
    signal.abort(gatewayError('attempt_timeout', 'too slow'))
    await ran
    assert.equal(outcomes[0]?.kind === 'failed' && outcomes[0].error.reason, 'attempt_timeout')
    assert.equal(shot.clock.pending, 0)
  }
})

test('a failure is no reply: it comes at once, and the journal says so', async () => {
  const shot = testShot()
  const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'gone') }
  assert.equal(await thin(shot)(() => Promise.resolve(failed))(toolCall('echo')), failed)
  assert.equal(shot.inapplicable.length, 1)
})

test('a chunk is bytes with or without a unit, a rate is above nothing', () => {
  assert.deepEqual(slowDrip.schema.parse({ chunk: '2KiB', gap: '1s' }), { chunk: 2_048, gap: 1_000 })
  assert.deepEqual(slowDrip.schema.parse({}), { chunk: 16, gap: 100 })
  assert.deepEqual(bandwidth.schema.parse({}), { kibPerSecond: 1 })
  assert.equal(slowDrip.schema.safeParse({ chunk: 0 }).success, false)
  assert.equal(bandwidth.schema.safeParse({ kibPerSecond: 0 }).success, false)
})

test('a message that cannot be delivered fails for its sender, and holds up none behind it', async () => {
  const shot = testShot()
  const channel = new TestChannel()
  channel.send = () => Promise.reject(new Error('the reader is gone'))
  const failures: unknown[] = []
  const service = thin(shot)(async (call) => {
    await call.channel.send(message(100))?.catch((error: unknown) => failures.push(error))
    return reply(100)
  })
  const ran = service(toolCall('echo', {}, { channel }))
  await shot.clock.advance(0)
  await shot.clock.advance(1_000)
  assert.equal((await ran).kind, 'answered')
  assert.equal(failures.length, 1)
})
