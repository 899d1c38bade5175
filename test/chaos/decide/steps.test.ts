import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newCall, toolCall } from '../../support/caller.ts'
import { fault, rig } from '../rig.ts'

const send = (set: ReturnType<typeof rig>, server: string, intent: string) => {
  const params = { name: 't', arguments: { n: Math.PI }, _meta: { 'dev.breakwater/intent': intent } }
  const call = newCall({ method: 'tools/call', params, server })
  return set.send(call).then(() => call.record.faults !== undefined)
}

test('faults of one domain hit together: all calls of an intent meet the same fate on every server', async () => {
  const set = rig()
  const shared = { rate: 0.5, domain: 'rack' }
  set.arm([
    fault('a', 'test.spoil', { ...shared, match: { server: 'a' } }),
    fault('b', 'test.spoil', { ...shared, match: { server: 'b' } }),
  ])
  let hit = 0
  for (let task = 0; task < 200; task++) {
    const fates = [await send(set, 'a', `task ${task}`), await send(set, 'b', `task ${task}`)]
    assert.equal(fates[0], fates[1])
    if (fates[0]) hit++
  }
  assert.ok(hit > 70 && hit < 130, `${hit} of 200`)
})

test('without an intent a domain goes by slots of a second', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { rate: 0.5, domain: 'rack' })])
  const slots: string[] = []
  for (let slot = 0; slot < 40; slot++) {
    const fates = new Set<boolean>()
    for (let n = 0; n < 4; n++) {
      const call = toolCall('t', { n })
      await set.send(call)
      fates.add(call.record.faults !== undefined)
      await set.clock.advance(250)
    }
    slots.push([...fates].join())
  }
  assert.deepEqual([...new Set(slots)].sort(), ['false', 'true'])
})

test('a burst by intents is frozen within one, whatever else it does, and moves with the next', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { rate: 0.4, when: { burst: { meanLength: 4, per: 'intent' } } })])
  const fates: boolean[] = []
  for (let task = 0; task < 100; task++) fates.push(await send(set, 'a', `task ${task}`))
  await set.clock.advance(60_000)
  for (let task = 99; task >= 0; task--) assert.equal(await send(set, 'b', `task ${task}`), fates[task])
  assert.equal(new Set(fates).size, 2)
})

test('a burst by slots hits all calls of a slot, however many come', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { rate: 0.4, when: { burst: { meanLength: 3 } } })])
  const slots: string[] = []
  for (let slot = 0; slot < 60; slot++) {
    const fates = new Set<boolean>()
    for (let n = 0; n < 1 + (slot % 3); n++) fates.add(await send(set, 'a', `task ${slot} ${n}`))
    slots.push([...fates].join())
    await set.clock.advance(1_000)
  }
  assert.deepEqual([...new Set(slots)].sort(), ['false', 'true'])
})
