import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Call, type Outcome, derive } from '../../../src/mesh/call.ts'
import { withMeta } from '../../../src/protocol/meta.ts'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

/** The fate of each fault of a call whose outcome reaches the agent as `final` makes it. */
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

test('it has escaped too when layers further out wrapped the result anew', async () => {
  const rewrapped = (outcome: Outcome): Outcome => {
    if (outcome.kind !== 'answered') return outcome
    const { result } = outcome
    const tagged = withMeta(result, 'result', 'x', 1)
    return { ...outcome, result: { ...result, ...tagged, value: { ...tagged.value, id: 'other' } } }
  }
  assert.deepEqual(await fates([fault('a', 'test.spoil')], rewrapped), ['a escaped'])
})

test('with word that something is missing, or as an error, it has surfaced', async () => {
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
  assert.deepEqual(seen, ['b escaped', 'a masked'])
  assert.deepEqual([set.tally('a').masked, set.tally('b').escaped], [1, 1])
})

test('of two faults that changed the same reply both escape', async () => {
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
  assert.equal(seen?.fault, first.record.faults?.[0])
  assert.deepEqual([seen?.fate, more.length], ['escaped', 0])
})

test('a call that nothing was done to has nothing to account for', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')], { mode: 'shadow' })
  const call = toolCall('t')
  assert.deepEqual(set.account(call, await set.send(call)), [])
})

test('what the agent did is counted once per fault, and the unknown never counts as safe', async () => {
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
  const { safe, silent, unknown } = set.tally('a')
  assert.deepEqual({ safe, silent, unknown }, { safe: 1, silent: 0, unknown: 1 })
})

test('a value that a fault made and that comes back in a write shows that the agent believed it', async () => {
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

test('what the server said itself is no canary', async () => {
  const set = rig({
    server: () => Promise.resolve(answer({ content: [{ type: 'text', text: 'original-value' }] })),
    effectOf: () => 'write',
  })
  set.arm([fault('a', 'test.spoil', { allowWrites: true, to: 'mutated-value' })])
  await set.send(toolCall('t'))
  await set.send(toolCall('t', { text: 'original-value' }))
  assert.deepEqual(set.typesOf(), ['armed'])
})
