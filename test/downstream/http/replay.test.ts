import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReplayBudget, ReplayLog, type ReplayLimits } from '../../../src/downstream/http/event-stream.ts'

const newLog = (limits: Omit<ReplayLimits, 'total'>) =>
  new ReplayLog(new ReplayBudget({ ...limits, total: Infinity }, () => undefined))

/** Returns the entries of a log for a stream after a place. */
const held = (log: ReplayLog, stream: number, after: number) =>
  log.after(stream, after).map(({ data }) => data)

test('the events of one stream are repeated in order, from a given event on', () => {
  const log = newLog({ events: 100, bytes: 100 })
  for (let sequence = 1; sequence <= 3; sequence++) {
    for (const stream of [0, 7]) log.add({ stream, sequence, data: `${stream}.${sequence}` })
  }
  assert.deepEqual(held(log, 7, 0), ['7.1', '7.2', '7.3'])
  assert.deepEqual(held(log, 7, 2), ['7.3'])
  assert.deepEqual(held(log, 7, 3), [])
  assert.deepEqual(held(log, 1, 0), [])
})

test('the oldest events go first, over all streams', () => {
  const log = newLog({ events: 3, bytes: 1_000 })
  for (let sequence = 1; sequence <= 4; sequence++)
    log.add({ stream: sequence % 2, sequence, data: `${sequence}` })
  assert.deepEqual(held(log, 1, 0), ['3'])
  assert.deepEqual(held(log, 0, 0), ['2', '4'])
})

test('a log keeps at most its limit of bytes, which a single event may exceed', () => {
  const log = newLog({ events: 100, bytes: 10 })
  for (const [sequence, data] of ['aaaa', 'bbbb', 'cccc'].entries()) log.add({ stream: 0, sequence, data })
  assert.deepEqual(held(log, 0, -1), ['bbbb', 'cccc'])
  log.add({ stream: 0, sequence: 3, data: 'x'.repeat(11) })
  assert.deepEqual(held(log, 0, -1), [])
  log.add({ stream: 0, sequence: 4, data: 'd' })
  assert.deepEqual(held(log, 0, -1), ['d'])
})

test('bytes are counted, not characters', () => {
  const log = newLog({ events: 100, bytes: 10 })
  for (const sequence of [0, 1, 2]) log.add({ stream: 0, sequence, data: '😀' })
  assert.equal(held(log, 0, -1).length, 2)
})

test('all logs together keep no more than their budget, and the oldest events go first, whosever they are', () => {
  let dropped = 0
  const budget = new ReplayBudget({ total: 10, events: 100, bytes: 100 }, () => void dropped++)
  const [a, b] = [new ReplayLog(budget), new ReplayLog(budget)]
  a.add({ stream: 0, sequence: 1, data: 'aaaa' })
  b.add({ stream: 0, sequence: 1, data: 'bbbb' })
  a.add({ stream: 0, sequence: 2, data: 'cc' })
  assert.deepEqual([budget.bytes, dropped], [10, 0])
  b.add({ stream: 0, sequence: 2, data: 'd' })
  assert.deepEqual([held(a, 0, 0), held(b, 0, 0)], [['cc'], ['bbbb', 'd']])
  assert.deepEqual([budget.bytes, dropped], [7, 1])
})

test('an event that is too large to be kept takes nothing away from other logs', () => {
  for (const own of [6, 100]) {
    const budget = new ReplayBudget({ total: 10, events: 100, bytes: own }, () => assert.fail('dropped'))
    const [a, b] = [new ReplayLog(budget), new ReplayLog(budget)]
    b.add({ stream: 0, sequence: 1, data: 'bbbb' })
    a.add({ stream: 0, sequence: 1, data: 'aa' })
    a.add({ stream: 0, sequence: 2, data: 'x'.repeat(11) })
    assert.deepEqual([held(a, 0, 0), held(b, 0, 0), budget.bytes], [[], ['bbbb'], 4])
  }
})

test('a log that is closed keeps nothing and takes nothing, and its share of the budget is free again', () => {
  const budget = new ReplayBudget({ total: 1_000, events: 3, bytes: 1_000 }, () => undefined)
  const [a, b] = [new ReplayLog(budget), new ReplayLog(budget)]
  for (let sequence = 1; sequence <= 50; sequence++)
    for (const log of [a, b]) log.add({ stream: 0, sequence, data: 'x' })
  assert.equal(budget.bytes, 6)
  a.close()
  a.add({ stream: 0, sequence: 51, data: 'late' })
  assert.deepEqual([held(a, 0, 0).length, held(b, 0, 0).length, budget.bytes], [0, 3, 3])
})

test('a log of many events drops its oldest one without a look at the others', () => {
  const log = newLog({ events: 100_000, bytes: 1_000_000 })
  let sequence = 0
  const fill = (count: number) => {
    for (let n = 0; n < count; n++) log.add({ stream: 0, sequence: ++sequence, data: 'x' })
  }
  fill(100_000)
  // Moving all entries for each removal would take minutes.
  fill(1_000_000)
  assert.equal(held(log, 0, sequence - 2).length, 2)
})
