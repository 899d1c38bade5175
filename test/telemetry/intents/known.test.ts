import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KnownIntents, keyOf, newIntent } from '../../../src/telemetry/intents/intent.ts'

function intentOf(id: string, tenant = 'a') {
  return newIntent({ id, source: 'meta', tenant, arm: '', key: keyOf('meta', tenant, id) }, undefined)
}

test('ended intents are forgotten in the order of their ends, and leave nothing behind', () => {
  const known = new KnownIntents()
  known.tune({ remember: 1_000, max: 10 })
  for (let index = 0; index < 100; index++) {
    // Ten names, ten tenants each.
    const intent = intentOf(`task ${index % 10}`, `tenant ${Math.floor(index / 10)}`)
    known.add(intent)
    known.end(intent, index)
    assert.ok(known.size <= 10)
  }
  assert.equal(known.size, 10)
  assert.deepEqual(
    known.find({ intent: 'task 3' }, 100).map(({ tenant }) => tenant),
    ['tenant 9'],
  )
  assert.deepEqual(known.find({ intent: 'task 3' }, 2_000), [])
  assert.equal(known.size, 0)
})

test('open intents are never forgotten', () => {
  const known = new KnownIntents()
  known.tune({ remember: 0, max: 1 })
  const open = intentOf('open')
  known.add(open)
  for (const id of ['x', 'y']) {
    const intent = intentOf(id)
    known.add(intent)
    known.end(intent, 0)
  }
  assert.deepEqual(known.find({ intent: 'open' }, 1e9), [open])
  assert.equal(known.size, 1)
})

test('a new intent replaces the intent with its key, and stays when the old intent is forgotten', () => {
  for (const others of [[], [intentOf('x', 'b')]]) {
    const known = new KnownIntents()
    const [first, second] = [intentOf('x'), intentOf('x')]
    for (const other of others) known.add(other)
    known.add(first)
    known.end(first, 0)
    assert.equal(known.get('x', first.key, 0), first)
    known.add(second)
    assert.equal(known.get('x', first.key, 0), second)
    assert.deepEqual(known.find({ intent: 'x' }, 1e9), [...others, second])
  }
})

test('an ended intent counts as known for its time of memory, and no longer', () => {
  const known = new KnownIntents()
  known.tune({ remember: 1_000, max: 10 })
  const intent = intentOf('x')
  known.add(intent)
  known.end(intent, 0)
  assert.equal(known.get('x', intent.key, 999), intent)
  assert.equal(known.get('x', intent.key, 1_000), undefined)
})
