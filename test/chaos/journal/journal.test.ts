import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DecisionEntry } from '../../../src/chaos/journal/entry.ts'
import { explain, replay } from '../../../src/chaos/journal/explain.ts'
import { Journal } from '../../../src/chaos/journal/journal.ts'
import { newCall, toolCall } from '../../support/caller.ts'
import { fault, rig, schema } from '../rig.ts'

test('every decision is written down, with its grounds and its effects', async () => {
  const { arm, send, controller } = rig()
  arm([fault('a', 'test.spoil'), fault('b', 'test.spoil', { rate: 0 })])
  const params = { name: 't', arguments: { secret: 'hunter2' }, _meta: { 'dev.breakwater/intent': 'task' } }
  await send(newCall({ method: 'tools/call', params, id: 'call-x' }))
  const [hit, missed] = controller.journal.decisions()
  assert.equal(hit?.decision, 'injected')
  assert.equal(hit.status, 'applied')
  assert.equal(hit.outcome, 'returned')
  assert.match(`${hit.before} ${hit.after}`, /^[0-9a-f]{16} [0-9a-f]{16}$/)
  assert.equal(hit.call.id, 'call-x')
  assert.equal(hit.call.intent, 'task')
  assert.equal(missed?.because, 'rate')
  assert.equal(missed.callKey, hit.callKey)
  assert.doesNotMatch(JSON.stringify(controller.journal.entries()), /hunter2/)
})

test('a held call shows at once, as pending', async () => {
  const { arm, send, controller, clock } = rig()
  arm([fault('a', 'test.hold')])
  const held = send(toolCall('t'))
  assert.equal(controller.journal.decisions()[0]?.status, 'pending')
  await clock.advance(60_000)
  await held
  assert.equal(controller.journal.decisions()[0]?.status, 'applied')
  assert.deepEqual(controller.journal.decisions()[0]?.note, { how: 'over' })
})

test('the journal records who did what to the engine', () => {
  const { arm, controller } = rig()
  arm([fault('a', 'test.spoil')])
  controller.kill('ops', 'alarm')
  const said = controller.journal
    .entries()
    .map((entry) => entry.kind === 'control' && [entry.type, entry.by, entry.why])
  assert.deepEqual(said, [
    ['armed', 'me', 'a test'],
    ['killed', 'ops', 'alarm'],
  ])
})

test('memory holds the latest 10,000 entries, in order', () => {
  const journal = new Journal()
  for (let count = 0; count < 12_000; count++) journal.control(0, { type: 'armed' })
  const entries = journal.entries()
  assert.equal(entries.length, 10_000)
  assert.equal(entries[0]?.seq, 2_001)
  assert.equal(entries.at(-1)?.seq, 12_000)
})

test('a call is explained by its id, its key or its intent', async () => {
  const { arm, send, controller } = rig()
  arm([fault('a', 'test.spoil'), fault('b', 'test.spoil', { rate: 0 })])
  await send(toolCall('t', {}, { id: 'one' }))
  await send(toolCall('t', {}, { id: 2 }))
  const all = controller.journal.decisions()
  const told = explain(all, 'one')
  assert.deepEqual(
    told.map(({ fault, decision }) => [fault, decision]),
    [
      ['a', 'injected'],
      ['b', 'not_injected'],
    ],
  )
  assert.equal(explain(all, '2').length, 2)
  assert.deepEqual(explain(all, told[0]!.callKey), told)
})

/** The decisions about 200 calls over 100 s of virtual time, with a plan of many kinds of faults. */
async function recorded(faults: readonly object[], seed: number): Promise<readonly DecisionEntry[]> {
  const { arm, send, controller, clock } = rig()
  arm(faults, { seed })
  for (let n = 0; n < 200; n++) {
    await send(toolCall('t', { n }))
    await clock.advance(500)
  }
  return controller.journal.decisions()
}

const plan = [
  fault('plain', 'test.spoil', { rate: 0.3, maxInjections: 10 }),
  fault('bursts', 'test.spoil', { rate: 0.3, when: { burst: { meanLength: 4 } } }),
  fault('seldom', 'test.spoil', { rate: 0.9, when: { everyNth: 7, window: { from: '10s', to: '60s' } } }),
  fault('domain', 'test.spoil', { rate: 0.5, domain: 'rack' }),
]

test('a replayed journal decides the same under the same plan, and names differences under another plan', async () => {
  const entries = await recorded(plan, 5)
  const { faults } = schema.parse({ faults: plan })
  const restored = JSON.parse(JSON.stringify(entries)) as DecisionEntry[]
  assert.deepEqual(replay({ seed: 5, faults }, restored), { decisions: 800, same: 800, differing: [] })
  assert.deepEqual(replay({ seed: 5, faults }, restored.toReversed()).same, 800)
  assert.equal(replay({ seed: 6, faults }, entries).same, 0)
  const higher = schema.parse({ faults: [{ ...plan[0], rate: 0.6 }] }).faults
  const differing = replay({ seed: 5, faults: higher }, entries).differing
  assert.ok(differing.some(({ what, was, now }) => what === 'decision' && was === 'rate' && now === 'hit'))
  assert.ok(differing.some(({ what, fault }) => what === 'fault_missing' && fault === 'bursts'))
})

test('injected faults are found by their targets, the latest first, also after memory has wrapped around', async () => {
  const { arm, send, controller } = rig()
  arm([fault('a', 'test.spoil', { match: { tool: 't*' } })])
  for (const tool of ['t1', 'other', 't2']) await send(toolCall(tool))
  const found = () =>
    controller.journal.injected(({ call }) => call.tool !== 't0').map(({ call }) => call.tool)
  assert.deepEqual(found(), ['t2', 't1'])
  for (let n = 0; n < 10_000 - 2; n++) controller.journal.control(0, { type: 'armed', by: 'test' })
  await send(toolCall('t3'))
  assert.deepEqual(found(), ['t3', 't2'])
})
