import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { route } from '../../../src/policies/route.ts'
import { toolCall } from '../../support/caller.ts'
import { answer, down, failure, setUp, up } from './rig.ts'

test('with one replica no choice is made: the very same call goes on', async () => {
  const { clock, send, sent, loads } = setUp([up(10)])
  const { call, done } = send()
  assert.equal(sent[0], call)
  assert.equal(loads()[0]?.inFlight, 1)
  await clock.advance(10)
  assert.equal(await done, answer)
  assert.equal(loads()[0]?.inFlight, 0)
})

test('a slow replica gets less than a twentieth of five seconds, and is tried again later', async () => {
  const { stream, counts, sent } = setUp([up(2_000), up(90)])
  await stream(5_000, 20)
  const [slow = 0, fast = 0] = counts()
  assert.ok(slow / (slow + fast) < 0.05, `${slow} of ${slow + fast}`)
  const from = sent.length
  await stream(60_000, 50)
  const [later = 0, rest = 0] = counts(from)
  assert.ok(later >= 1, 'the replica was never tried again')
  assert.ok(later / (later + rest) < 0.05, `${later} of ${later + rest}`)
})

test('a replica that has become fast gets its share again', async () => {
  const replicas = [up(2_000), up(90)]
  const { stream, counts, sent } = setUp(replicas)
  await stream(10_000, 50)
  replicas[0] = up(90)
  await stream(60_000, 50)
  const from = sent.length
  await stream(10_000, 50)
  const [first = 0, second = 0] = counts(from)
  assert.ok(first / (first + second) > 0.3, `${first} of ${first + second}`)
})

test('equal replicas share the calls, of those that are many as well', async () => {
  const { stream, counts } = setUp([up(50), up(50), up(50), up(50), up(50)])
  await stream(10_000, 10)
  for (const count of counts()) assert.ok(count > 100 && count < 400, String(counts()))
})

test('a replica of which nothing is known is tried with one call at a time', async () => {
  const { clock, send, counts } = setUp([up(1_000), up(10)])
  for (let i = 0; i < 2; i++) void send()
  await clock.advance(10)
  for (let i = 0; i < 20; i++) void send()
  assert.deepEqual(counts(), [1, 21])
})

test('a replica that fails at once draws no calls', async () => {
  const { stream, counts } = setUp([down(1), up(90)], { ejection: false })
  await stream(10_000, 50)
  const [failing = 0, good = 0] = counts()
  assert.ok(failing / (failing + good) < 0.05, `${failing} of ${failing + good}`)
})

test('a replica that refuses at once, or answers wrongly, draws no calls either', async () => {
  const wrong = { ...answer, verdict: 'schema_invalid' } as const
  for (const outcome of [failure('upstream_rate_limited'), wrong]) {
    const { stream, counts } = setUp([{ ms: 1, outcome }, up(90)])
    await stream(10_000, 50)
    const [bad = 0, good = 0] = counts()
    assert.ok(bad / (bad + good) < 0.05, `${bad} of ${bad + good}`)
  }
})

test('a replica that ran a slow tool does not look slow to a quick one', async () => {
  const { clock, context, scope, send, loads } = setUp([up(10), up(10)])
  const slowTool = route.build(route.schema.parse({}), context, { ...scope, tool: 'slow' })
  const slow = slowTool((call) => clock.sleep(10_000, call.signal).then(() => answer))
  for (let i = 0; i < 3; i++) {
    void slow(toolCall('slow', {}, { replica: 0 }))
    void send({ replica: 1 })
    await clock.advance(10_000)
  }
  for (const load of loads()) {
    const cost = load.snapshot(clock.now()).cost ?? 0
    assert.ok(cost > 0.3 && cost < 1.1, String(cost))
  }
})

test('calls in flight count, however they end', async () => {
  const { clock, send, loads } = setUp([up(1_000), up(1_000)])
  const signal = new Cancellation()
  const calls = [send({ signal }), send({ signal }), send({ signal })]
  const inFlight = () => loads().reduce((sum, load) => sum + load.inFlight, 0)
  assert.equal(inFlight(), 3)
  signal.abort(gatewayError('cancelled', 'enough'))
  await Promise.all(calls.map(({ done }) => done))
  assert.equal(inFlight(), 0)
  assert.equal(clock.pending, 0)
})

test('a second attempt goes elsewhere, if there is anywhere else', async () => {
  for (const failed of [0, 1]) {
    const { clock, service, send, sent } = setUp([up(), up()])
    const { call, done } = send()
    await clock.advance(10)
    await done
    call.record.replica = failed
    void service({ ...call, attempt: 2 })
    assert.equal(sent[1]?.replica, 1 - failed)
  }
})

test('a caller that names a replica gets the replica', () => {
  const { send, counts } = setUp([up(), up(), up()])
  for (let i = 0; i < 5; i++) void send({ replica: 2 })
  assert.deepEqual(counts(), [0, 0, 5])
})
