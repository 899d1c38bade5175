import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newCall, TestCaller, toolCall } from '../../support/caller.ts'
import { fault, rig } from '../rig.ts'
import { injectedFaults } from '../../../src/mesh/injected.ts'

const send = (set: ReturnType<typeof rig>, server: string, intent: string) => {
  const params = { name: 't', arguments: { n: Math.PI }, _meta: { 'dev.breakwater/intent': intent } }
  const call = newCall({ method: 'tools/call', params, server })
  return set.send(call).then(() => injectedFaults.of(call.record) !== undefined)
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
      fates.add(injectedFaults.of(call.record) !== undefined)
      await set.clock.advance(250)
    }
    slots.push([...fates].join())
  }
  assert.deepEqual([...new Set(slots)].sort(), ['false', 'true'])
})

test('a burst by intents freezes within an intent, and moves with the next intent', async () => {
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

test('calls in bursts count within their task, whatever other tasks do meanwhile and whatever they call', async () => {
  const burst = { rate: 0.4, when: { burst: { meanLength: 3, per: 'call' } } }
  const fates = async (tasks: readonly string[], calls: number) => {
    const set = rig()
    set.arm([fault('a', 'test.spoil', burst)])
    const of = new Map<string, boolean[]>()
    for (const task of tasks.flatMap((name) => Array.from({ length: calls }, () => name)))
      of.set(task, [...(of.get(task) ?? []), await send(set, 'a', task)])
    return of
  }
  const names = Array.from({ length: 40 }, (_, task) => `task ${task}`)
  const expected = await fates(names, 8)
  assert.deepEqual(await fates(names.toReversed(), 8), new Map([...expected].toReversed()))
  const alternating = await fates([...names, ...names, ...names, ...names], 2)
  assert.deepEqual(alternating, expected)
  assert.ok([...expected.values()].some((own) => new Set(own).size === 2))
})

test('tasks are consecutive if their names differ in the number at the end', async () => {
  const fates = async (name: (task: number) => string) => {
    const set = rig()
    set.arm([fault('a', 'test.spoil', { rate: 0.5, when: { burst: { meanLength: 50, per: 'intent' } } })])
    const hit: boolean[] = []
    for (let task = 0; task < 300; task++) hit.push(await send(set, 'a', name(task)))
    return hit.filter((one, index) => index > 0 && one !== hit[index - 1]).length
  }
  assert.ok((await fates((task) => `run-${task}`)) < 40)
  assert.ok((await fates((task) => `${task}-run`)) > 100)
})

test('a share of the tasks is hit: all calls of a task or none, by the intent, or else the session', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { match: { tasks: 0.25 } })])
  let hit = 0
  for (let task = 0; task < 400; task++) {
    const caller = new TestCaller()
    const fates = new Set<boolean>()
    for (let n = 0; n < 4; n++) {
      if (task % 2 === 0) fates.add(await send(set, 'a', `task ${task}`))
      else {
        const call = toolCall('t', { n }, { caller })
        await set.send(call)
        fates.add(injectedFaults.of(call.record) !== undefined)
      }
    }
    assert.equal(fates.size, 1)
    if (fates.has(true)) hit++
  }
  const sd = Math.sqrt(400 * 0.25 * 0.75)
  assert.ok(Math.abs(hit - 100) < 3.29 * sd, `${hit} of 400`)
})

test('a header of the request is a filter: the header cannot raise a rate, and its value is not in the journal', async () => {
  const set = rig()
  set.arm([
    fault('a', 'test.spoil', { rate: 0.5, match: { header: { 'x-key': 'sesame-*', 'x-chaos-rate': '*' } } }),
  ])
  let hit = 0
  for (let n = 0; n < 400; n++) {
    const inbound = { 'x-key': n % 2 === 0 ? 'sesame-open' : 'other', 'x-chaos-rate': '1' }
    const call = toolCall('t', { n }, { inbound })
    await set.send(call)
    if (injectedFaults.of(call.record) === undefined) continue
    assert.equal(n % 2, 0)
    hit++
  }
  assert.ok(hit > 70 && hit < 130, `${hit} of 200`)
  assert.doesNotMatch(JSON.stringify(set.controller.journal.decisions()), /sesame/)
})
