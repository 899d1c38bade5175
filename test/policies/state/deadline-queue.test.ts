import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { DeadlineQueue, type Queued } from '../../../src/policies/state/deadline-queue.ts'

interface Item extends Queued {
  readonly name: string
}

let order = 0
const item = (at: number, name = ''): Item => ({ at, order: order++, place: -1, name })

function drain(queue: DeadlineQueue<Item>): Item[] {
  const drained: Item[] = []
  for (let { first } = queue; first !== undefined; first = queue.first) {
    drained.push(first)
    assert.equal(queue.remove(first), true)
  }
  return drained
}

test('the earliest deadline comes first, those without one last, equals in the order of arrival', () => {
  const queue = new DeadlineQueue<Item>()
  const items = [item(Infinity, 'd'), item(20, 'b'), item(Infinity, 'e'), item(10, 'a'), item(20, 'c')]
  for (const one of items) queue.push(one)
  assert.equal(queue.last?.name, 'e')
  assert.equal(
    drain(queue)
      .map(({ name }) => name)
      .join(''),
    'abcde',
  )
})

test('any item can be taken out by itself, once', () => {
  const queue = new DeadlineQueue<Item>()
  const items = [5, 3, 8, 1, 9].map((at) => item(at))
  for (const one of items) queue.push(one)
  assert.equal(queue.remove(items[1]!), true)
  assert.equal(queue.remove(items[1]!), false)
  assert.deepEqual(
    drain(queue).map(({ at }) => at),
    [1, 5, 8, 9],
  )
})

test('the order holds however items come and go', () => {
  const random = createKeyedRandom(7)
  const queue = new DeadlineQueue<Item>()
  const present = new Set<Item>()
  for (let step = 0; step < 2_000; step++) {
    const pick = Math.floor(random(String(step), 'pick') * present.size)
    if (random(String(step), 'what') < 0.6 || present.size === 0) {
      const one = item(Math.floor(random(String(step), 'at') * 50))
      queue.push(one)
      present.add(one)
    } else {
      const one = [...present][pick]!
      present.delete(one)
      assert.equal(queue.remove(one), true)
    }
    const sorted = [...present].sort((a, b) => a.at - b.at || a.order - b.order)
    assert.equal(queue.first, sorted[0])
    assert.equal(queue.last, sorted.at(-1))
    assert.equal(queue.size, sorted.length)
  }
})
