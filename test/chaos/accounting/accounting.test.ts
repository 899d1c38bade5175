import assert from 'node:assert/strict'
import { test } from 'node:test'
import { injector } from '../../../src/chaos/firing/engine.ts'
import { type Call, type Outcome, type Service, derive } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { injectedFaults, rejectedOver } from '../../../src/mesh/injected.ts'
import { withMeta } from '../../../src/protocol/meta.ts'
import { whenAborted } from '../../../src/upstreams/failure.ts'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

/** Returns the fate of each fault of a call. `final` maps the outcome to the outcome that the agent gets. */
async function fates(faults: readonly object[], final: (outcome: Outcome) => Outcome = (outcome) => outcome) {
  const set = rig()
  set.arm(faults)
  const call = toolCall('t')
  const outcome = final(await set.upstream(call))
  return set.account(call, outcome).map(({ fault: { name }, fate }) => `${name} ${fate}`)
}

test('a corrupted reply that reaches the agent looking fine has escaped', async () => {
  assert.deepEqual(await fates([fault('a', 'test.spoil')]), ['a escaped'])
})

test('a corrupted reply has escaped too when outer layers wrapped the result anew', async () => {
  const rewrapped = (outcome: Outcome): Outcome => {
    if (outcome.kind !== 'answered') return outcome
    const { result } = outcome
    const tagged = withMeta(result, 'result', 'x', 1)
    return { ...outcome, result: { ...result, ...tagged, value: { ...tagged.value, id: 'other' } } }
  }
  assert.deepEqual(await fates([fault('a', 'test.spoil')], rewrapped), ['a escaped'])
})

test('a corrupted reply has surfaced when marked as partial or sent as an error', async () => {
  const partial = (outcome: Outcome): Outcome =>
    outcome.kind === 'answered'
      ? { ...outcome, partial: { source: 'detected', reason: 'incomplete', notice: false } }
      : outcome
  assert.deepEqual(await fates([fault('a', 'test.spoil')], partial), ['a surfaced'])
  assert.deepEqual(await fates([fault('a', 'test.fail')]), ['a surfaced'])
  assert.deepEqual(await fates([fault('a', 'test.spoil')], () => answer({ isError: true })), ['a surfaced'])
})

test('a fault that the mesh made up for is masked', async () => {
  assert.deepEqual(await fates([fault('a', 'test.spoil')], () => answer()), ['a masked'])
  const set = rig()
  set.arm([fault('a', 'test.fail', { maxInjections: 1 }), fault('b', 'test.spoil')])
  const call = toolCall('t')
  await set.upstream(call)
  const outcome = await set.upstream(derive(call, { attempt: 2 }))
  const seen = set.account(call, outcome).map(({ fault: { name }, fate }) => `${name} ${fate}`)
  assert.deepEqual(seen, ['a masked', 'b not_reached', 'b escaped'])
  assert.deepEqual([set.tally('a').masked, set.tally('b').escaped], [1, 1])
})

test('two faults that changed the same reply both escape', async () => {
  const seen = await fates([fault('a', 'test.spoil'), fault('b', 'test.spoil')])
  assert.deepEqual(seen.sort(), ['a escaped', 'b escaped'])
})

test('a corrupted reply that was kept and served again counts for the call that got it', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')])
  const first = toolCall('t')
  const kept = await set.upstream(first)
  set.controller.disarm('me', 'enough')
  const [seen, ...more] = set.account(toolCall('t'), kept)
  assert.equal(seen?.fault, injectedFaults.of(first.record)?.[0])
  assert.deepEqual([seen?.fate, more.length], ['escaped', 0])
})

test('a call without an effect of a fault has nothing to account for', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')], { mode: 'shadow' })
  const call = toolCall('t')
  assert.deepEqual(set.account(call, await set.send(call)), [])
})

test('an agent outcome is counted once per fault, and an unknown outcome never counts as safe', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')])
  const send = (id: string) => set.send(toolCall('t', {}, { id }))
  await send('one')
  await send('two')
  const { accounting } = set.controller.engine
  assert.equal(accounting.report('one', 'unknown'), 1)
  assert.equal(accounting.report('one', 'safe'), 1)
  assert.equal(accounting.report('one', 'silent'), 0)
  assert.equal(accounting.report('nobody', 'safe'), 0)
  assert.equal(accounting.report('two', 'silent', { intent: 'of another' }), 0)
  const { safe, silent, unknown } = set.tally('a')
  assert.deepEqual({ safe, silent, unknown }, { safe: 1, silent: 0, unknown: 1 })
})

test('a value made by a fault proves belief of the agent when the value comes back in a write', async () => {
  let writes = false
  const set = rig({ effectOf: () => (writes ? 'write' : 'read_only') })
  set.arm([fault('a', 'test.spoil', { to: 'order-4711-x', maxInjections: 1 })])
  const say = (args: Record<string, unknown>): Promise<Outcome> => {
    const call: Call = toolCall('t', args)
    return set.send(call)
  }
  await say({})
  await say({ q: 'order-4711-x' })
  writes = true
  await say({ text: 'harmless' })
  assert.deepEqual(set.typesOf(), ['armed'])
  await say({ text: 'please cancel order-4711-x, now' })
  await say({ text: 'order-4711-x' })
  assert.deepEqual(set.typesOf(), ['armed', 'canary'])
  assert.equal(set.events[1]?.detail?.fault, 'a')
  assert.equal(set.tally('a').silent, 1)
})

test('text of the server itself is no canary', async () => {
  const set = rig({
    server: () => Promise.resolve(answer({ content: [{ type: 'text', text: 'original-value' }] })),
    effectOf: () => 'write',
  })
  set.arm([fault('a', 'test.spoil', { allowWrites: true, to: 'mutated-value' })])
  await set.send(toolCall('t'))
  await set.send(toolCall('t', { text: 'original-value' }))
  assert.deepEqual(set.typesOf(), ['armed'])
})

test('each injection has one fate, whatever becomes of the rest of its attempt', async () => {
  const set = rig()
  set.arm([fault('a', 'test.hold', { holdFor: '10s' })])
  const call = toolCall('t')
  const held = set.upstream(call)
  await set.clock.advance(3_000)
  // A hedge was faster: the agent has its answer while the first attempt is still held.
  call.record.isOver = true
  const fates = set.account(call, answer())
  assert.deepEqual(
    fates.map(({ fate, delayedMs }) => [fate, delayedMs]),
    [['delayed', 3_000]],
  )
  await set.clock.advance(10_000)
  await held
  assert.deepEqual(set.account(call, answer()), [])
  const { injected, hits, delayed, delayedMs, notReached } = set.tally('a')
  assert.deepEqual([injected, hits, delayed, delayedMs, notReached], [1, 1, 1, 3_000, 0])
})

test('a fault that has done nothing when the call is over is not reached', async () => {
  const set = rig({ server: () => new Promise<Outcome>(() => undefined) })
  set.arm([fault('a', 'test.spoil')])
  const call = toolCall('t')
  void set.upstream(call)
  const [fate] = set.account(call, answer())
  assert.equal(fate?.fate, 'not_reached')
  const { injected, hits, masked, notReached } = set.tally('a')
  assert.deepEqual([injected, hits, masked, notReached], [1, 0, 0, 1])
})

test('no fault hits work that continues after the end of its call', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')])
  const call = toolCall('t')
  call.record.isOver = true
  await set.upstream(call)
  assert.equal(set.tally('a').decided, 0)
})

test('a partial reply marked as partial has surfaced, even if no policy has looked at the reply', async () => {
  const declared = { content: [], _meta: { 'dev.breakwater/partial': { reason: 'a part is missing' } } }
  const told = (outcome: Outcome) =>
    outcome.kind === 'answered' && answer({ ...(outcome.result.value.result as object), ...declared })
  const set = rig()
  set.arm([fault('a', 'test.spoil')])
  const call = toolCall('t')
  const outcome = told(await set.send(call))
  assert.ok(outcome)
  assert.equal(set.account(call, outcome)[0]?.fate, 'surfaced')
})

test('serving a kept reply again gives its injection no second fate', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { maxInjections: 1 })])
  const first = toolCall('t')
  const kept = await set.upstream(first)
  assert.deepEqual(
    set.account(first, kept).map(({ fate, isKept }) => [fate, isKept]),
    [['escaped', undefined]],
  )
  assert.deepEqual(
    set.account(toolCall('t'), kept).map(({ fate, isKept }) => [fate, isKept]),
    [['escaped', true]],
  )
  const { injected, escaped, kept: again } = set.tally('a')
  assert.deepEqual([injected, escaped, again], [1, 1, 1])
})

test('a call that is sent again when its fault is over counts as sent again', async () => {
  const set = rig()
  set.arm([fault('a', 'test.fail')])
  const call = toolCall('t')
  await set.upstream(call)
  set.controller.disarm('op', 'over')
  await set.upstream(derive(call, { attempt: 2 }))
  set.account(call, answer())
  assert.deepEqual(
    injectedFaults.of(call.record)?.map(({ resent }) => resent),
    [true],
  )
})

test('the record lists mitigations of the mesh beside the fault', async () => {
  const set = rig()
  set.arm([fault('a', 'test.fail', { maxInjections: 1 })])
  const call = toolCall('t')
  await set.upstream(call)
  await set.upstream(derive(call, { attempt: 2 }))
  set.account(call, answer())
  const rejected = toolCall('t')
  const error = { ...gatewayError('overloaded', 'the breaker is open'), reason: 'breaker_open' }
  assert.deepEqual(set.account(rejected, { kind: 'rejected', error, by: 'breaker' }), [])
  assert.deepEqual(rejectedOver.of(rejected.record), ['a'])
  const { injected, masked, resent, rejections } = set.tally('a')
  assert.deepEqual([injected, masked, resent, rejections], [1, 1, 1, 1])
})

test('a rejection goes to no fault that is not meant for such a call', async () => {
  const set = rig()
  set.arm([fault('a', 'test.fail', { match: { tenant: 'acme' } }), fault('b', 'test.fail')])
  const [call, rejected] = [toolCall('t', {}, { tenant: 'acme' }), toolCall('t', {}, { tenant: 'other' })]
  set.account(call, await set.upstream(call))
  const error = { ...gatewayError('overloaded', 'the breaker is open'), reason: 'breaker_open' }
  set.account(rejected, { kind: 'rejected', error, by: 'breaker' })
  assert.ok(!rejectedOver.of(rejected.record)?.includes('a'))
  assert.equal(set.tally('a').rejections, 0)
})

test('the gateway’s own requests are excluded from all numbers of agents’ calls', async () => {
  const set = rig()
  set.arm([fault('a', 'test.fail')])
  const own = injector('upstream', set.controller.engine, 'discovery')(() => Promise.resolve(answer()))
  const question = toolCall('t')
  set.account(question, await own(question))
  const { decided, injected, surfaced, discovery } = set.tally('a')
  assert.deepEqual([decided, injected, surfaced], [0, 0, 0])
  assert.deepEqual([discovery.decided, discovery.injected, discovery.surfaced], [1, 1, 1])
})

/** Returns the faults blamed for a failed call, before and after its timeout of `limitMs`. */
async function culprits(faults: readonly object[], server: Service, limitMs = 3_000) {
  const set = rig({ server })
  set.arm(faults)
  const limit = new Cancellation()
  const call = derive(toolCall('t'), { signal: limit })
  set.clock.after(limitMs, () => limit.abort(gatewayError('attempt_timeout', 'it took too long')))
  const { engine } = set.controller
  let after: readonly string[] | undefined
  void set.upstream(call).then((outcome) => (after = engine.culprits(call, outcome)))
  await set.clock.advance(limitMs - 1)
  const before = engine.culprits(call, undefined)
  await set.clock.advance(1)
  return { before, after }
}

const unwell: Service = () => Promise.resolve({ kind: 'failed', error: gatewayError('bad_reply', 'broken') })
const well: Service = () => Promise.resolve(answer())
const hanging: Service = ({ signal }) =>
  new Promise((resolve) =>
    whenAborted(signal, (error) => resolve({ kind: 'failed', error: { ...error, sent: true } })),
  )

test('a failure is attributed to the faults that caused the failure, and not to a harmless delay', async () => {
  const short = fault('short', 'test.hold', { holdFor: 1 })
  const half = fault('half', 'test.hold', { holdFor: '1500ms' })
  const long = fault('long', 'test.hold', { holdFor: '1m' })
  const fail = fault('fail', 'test.fail')
  const spoil = fault('spoil', 'test.spoil')
  for (const [faults, server, after] of [
    [[short], unwell, []],
    [[spoil], unwell, []],
    [[fail], well, ['fail']],
    [[short, fail], well, ['fail']],
    [[fail, short], unwell, ['fail']],
    [[spoil], well, ['spoil']],
    [[short], well, []],
    [[short], hanging, []],
    [[half], hanging, ['half']],
  ] as const)
    assert.deepEqual((await culprits(faults, server)).after, after)
  assert.deepEqual((await culprits([long, short], well)).before, ['long'])
  assert.deepEqual((await culprits([short], hanging)).before, [])
})
