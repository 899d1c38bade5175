import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { Effect } from '../../src/mesh/policy.ts'
import { overdue } from '../../src/policies/overdue.ts'
import { hedges, type BudgetSnapshot } from '../../src/policies/retry/tries.ts'
import { toolCall, type CallParts } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { answer, failed } from './retry/scripted.ts'

/** A try that reached the server. */
interface Try {
  readonly call: Call
  readonly at: number
  readonly end: (outcome?: Outcome) => Promise<void>
}

/** A server that hangs until a test ends its tries; a try's name is `ID#ATTEMPT`. */
async function setUp({
  config = {},
  effect = 'read_only',
  isKnown = true,
}: { config?: object; effect?: Effect; isKnown?: boolean } = {}) {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const tries = new Map<string, Try>()
  const outcomes = new Map<string | number, Outcome>()
  const layer = overdue.build(overdue.schema.parse(config), context, testScope({ effect }))
  const service = layer((call) => {
    if (call.id === 'known') return Promise.resolve(answer)
    if (call.signal.aborted) return Promise.resolve({ kind: 'failed', error: call.signal.reason as never })
    call.record.sent = true
    return new Promise((resolve) => {
      const gone = () =>
        resolve({ kind: 'failed', error: { ...(call.signal.reason as object), sent: true } as never })
      call.signal.addEventListener('abort', gone)
      const end = async (outcome: Outcome = answer) => {
        resolve(outcome)
        await setImmediate()
      }
      tries.set(`${call.id}#${call.attempt}`, { call, at: clock.now(), end })
    })
  })
  // Before the first answer, nothing counts as overdue.
  if (isKnown) await service(toolCall('tool', {}, { id: 'known' }))
  const send = (id: string, parts: Partial<CallParts> = {}): Call => {
    const call = toolCall('tool', {}, { id, ...parts })
    void service(call).then((outcome) => outcomes.set(id, outcome))
    return call
  }
  const end = (name: string, outcome?: Outcome) => {
    const one = tries.get(name)
    assert.ok(one, `there is no try ${name}`)
    return one.end(outcome)
  }
  const retrying = () =>
    context.state
      .list<{ snapshot(): BudgetSnapshot }>('retry-budget')
      .map(([, budget]) => budget.snapshot().retrying)
  const names = () => [...tries.keys()]
  return { clock, tries, names, outcomes, send, end, retrying }
}

test('a read that comes back in time is sent once', async () => {
  const { clock, names, outcomes, send, end } = await setUp()
  send('a')
  await clock.advance(1_999)
  await end('a#1')
  await clock.advance(60_000)
  assert.deepEqual(names(), ['a#1'])
  assert.equal(outcomes.get('a'), answer)
})

test('one copy of the oldest of many overdue reads finds out whether the server answers', async () => {
  const { clock, names, send } = await setUp()
  for (let i = 0; i < 20; i++) send(`${i}`)
  await clock.advance(2_000)
  assert.deepEqual(names().slice(20), ['0#2'])
})

test('the pauses between copies double from two seconds, and a call gets four at most', async () => {
  const { clock, tries, send } = await setUp()
  send('a')
  await clock.advance(60_000)
  const at = [...tries.values()].map(({ at }) => at)
  assert.deepEqual(
    at.slice(1).map((time, index) => Math.round(time - at[index]!)),
    [2_000, 2_000, 4_000, 8_000],
  )
})

test('overdue reads take turns in finding out whether the server answers', async () => {
  const { clock, names, send } = await setUp()
  for (const id of ['a', 'b', 'c']) send(id)
  await clock.advance(20_000)
  assert.deepEqual(names().slice(3), ['a#2', 'b#2', 'c#2', 'a#3'])
})

test('no call of a tool is overdue before one has been answered', async () => {
  const { clock, names, send } = await setUp({ isKnown: false })
  send('a')
  await clock.advance(60_000)
  assert.deepEqual(names(), ['a#1'])
})

test('all reads that hang are sent once more when a call that was sent later has been answered', async () => {
  const { clock, names, outcomes, send, end } = await setUp()
  for (const id of ['a', 'b', 'c']) send(id)
  await clock.advance(2_500)
  send('late')
  await clock.advance(10)
  await end('late#1')
  assert.deepEqual(names(), ['a#1', 'b#1', 'c#1', 'a#2', 'late#1', 'a#3', 'b#2', 'c#2'])
  for (const name of ['a#3', 'b#2', 'c#2']) await end(name)
  assert.deepEqual([...outcomes.keys()], ['late', 'a', 'b', 'c'])
  await clock.advance(60_000)
  assert.equal(names().length, 8)
})

test('the answer of the copy that finds out has the others sent again', async () => {
  const { clock, names, send, end } = await setUp()
  for (const id of ['a', 'b']) send(id)
  await clock.advance(2_000)
  await end('a#2')
  assert.deepEqual(names(), ['a#1', 'b#1', 'a#2', 'b#2'])
})

test('an answer to a call that was sent before the overdue ones proves nothing', async () => {
  const { clock, names, send, end } = await setUp()
  send('first')
  await clock.advance(100)
  for (const id of ['a', 'b']) send(id)
  await clock.advance(2_050)
  const before = names().length
  await end('first#1')
  assert.equal(names().length, before)
})

test('a read that hangs while later reads are answered is copied once: heavy, or with a lost request', async () => {
  const { clock, names, send, end } = await setUp()
  send('heavy')
  for (let nth = 0; nth < 40; nth++) {
    await clock.advance(1_000)
    send(`${nth}`)
    await end(`${nth}#1`)
  }
  assert.deepEqual(
    names().filter((name) => name.startsWith('heavy')),
    ['heavy#1', 'heavy#2'],
  )
})

test('a failure does not prove that the server answers', async () => {
  const { clock, names, send, end } = await setUp()
  for (const id of ['a', 'b']) send(id)
  await clock.advance(2_500)
  send('late')
  await end('late#1', failed('upstream_status'))
  assert.deepEqual(names(), ['a#1', 'b#1', 'a#2', 'late#1'])
})

test('the original stays, and the first answer counts', async () => {
  for (const [first, second] of [
    ['a#1', 'a#2'],
    ['a#2', 'a#1'],
  ] as const) {
    const { clock, tries, outcomes, send, end, retrying } = await setUp()
    const { record } = send('a')
    await clock.advance(2_000)
    assert.equal(tries.get('a#1')?.call.signal.aborted, false)
    const own: Outcome = { ...answer }
    await end(first, own)
    assert.equal(outcomes.get('a'), own)
    assert.equal(tries.get(second)?.call.signal.aborted, true)
    assert.equal(hedges.of(record), 1)
    await clock.advance(60_000)
    assert.deepEqual([tries.size, retrying()], [2, [0, 0]])
  }
})

test('a copy that fails says less than an original that may still be answered', async () => {
  const { clock, outcomes, send, end } = await setUp()
  send('a')
  await clock.advance(2_000)
  await end('a#2', failed('upstream_status'))
  assert.equal(outcomes.size, 0)
  await end('a#1')
  assert.equal(outcomes.get('a'), answer)
})

test('when all tries have failed, the end of the original is reported', async () => {
  const { clock, outcomes, send, end } = await setUp()
  send('a')
  await clock.advance(2_000)
  const own = failed('upstream_status')
  await end('a#1', own)
  assert.equal(outcomes.size, 0)
  await end('a#2', failed('bad_reply'))
  assert.equal(outcomes.get('a'), own)
})

test('a copy whose server asks the agent something is ended, and the original goes on', async () => {
  const { clock, tries, outcomes, send, end } = await setUp()
  send('a')
  await clock.advance(2_000)
  const copy = tries.get('a#2')!.call
  const message = { text: '{}', value: {} }
  void copy.channel.send(message)
  assert.equal(copy.signal.aborted, false)
  void copy.channel.send(message, () => Promise.resolve())
  assert.equal(copy.signal.aborted, true)
  await setImmediate()
  assert.equal(outcomes.size, 0)
  await end('a#1')
  assert.equal(outcomes.get('a'), answer)
})

test('once the agent has heard of the original, it hears the end of the original', async () => {
  const { clock, names, outcomes, send, end } = await setUp()
  const { record } = send('a')
  await clock.advance(2_000)
  record.firstByteAt = clock.now()
  const late: Outcome = { ...answer }
  await end('a#2', late)
  assert.equal(outcomes.size, 0)
  await clock.advance(60_000)
  assert.deepEqual(names(), ['a#1', 'a#2'])
  await end('a#1')
  assert.equal(outcomes.get('a'), answer)
})

test('only what is known to read alone is sent twice', async () => {
  for (const effect of ['write', 'idempotent', 'unknown'] as const) {
    const { clock, names, send } = await setUp({ effect })
    send('a')
    await clock.advance(60_000)
    assert.deepEqual(names(), ['a#1'], effect)
  }
})

test("somebody else's retry is not sent twice", async () => {
  const { clock, names, send } = await setUp()
  send('a', { inbound: { 'x-breakwater-attempt': '2' } })
  await clock.advance(60_000)
  assert.deepEqual(names(), ['a#1'])
})

test('a tool that usually takes long is overdue after five times as long', async () => {
  const { clock, names, send, end } = await setUp()
  send('usual')
  await clock.advance(1_000)
  await end('usual#1')
  send('a')
  await clock.advance(4_999)
  assert.deepEqual(names(), ['usual#1', 'a#1'])
  await clock.advance(2_000)
  assert.deepEqual(names(), ['usual#1', 'a#1', 'a#2'])
})

test('copies are paid for from the budget of retries', async () => {
  const { clock, names, send } = await setUp({ config: { budget: { ratio: 0, floor: 0 } } })
  const { record } = send('a')
  await clock.advance(60_000)
  assert.deepEqual(names(), ['a#1'])
  assert.equal(hedges.of(record), 0)
})

test('a call that is given up ends all its tries, and nothing is left of it', async () => {
  const { clock, tries, outcomes, send, retrying } = await setUp()
  const signal = new Cancellation()
  send('a', { signal })
  await clock.advance(2_000)
  const reason = gatewayError('cancelled', 'not needed any more')
  signal.abort(reason)
  await setImmediate()
  assert.ok([...tries.values()].every(({ call }) => call.signal.reason === reason))
  const outcome = outcomes.get('a')
  assert.ok(outcome?.kind === 'failed')
  assert.equal(outcome.error.message, 'not needed any more')
  await clock.advance(60_000)
  assert.deepEqual([tries.size, retrying(), clock.pending], [2, [0, 0], 0])
})

test('a call that was given up before it came ends at once', async () => {
  const { clock, names, outcomes, send } = await setUp()
  const signal = new Cancellation()
  signal.abort(gatewayError('cancelled', 'not needed any more'))
  send('a', { signal })
  await clock.advance(0)
  assert.equal(outcomes.get('a')?.kind, 'failed')
  assert.deepEqual(names(), [])
})

test('a defect of ours meets its own call, and leaves nothing behind', async () => {
  const clock = new ManualClock()
  const layer = overdue.build(overdue.schema.parse({}), testPolicyContext(clock), testScope())
  await assert.rejects(layer(() => Promise.reject(new Error('a defect')))(toolCall('tool')), /a defect/)
  await clock.advance(60_000)
  assert.equal(clock.pending, 0)
})

test('a read is overdue after two seconds and five times its usual time unless told otherwise', () => {
  assert.equal(overdue.optIn, undefined)
  const { after, times } = overdue.schema.parse({})
  assert.deepEqual([after, times], [2_000, 5])
})
