import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReplayLog } from '../../src/downstream/replay.ts'

/** What a log holds of a stream behind a place. */
const held = (log: ReplayLog, stream: number, after: number) =>
  log.after(stream, after).map(({ data }) => data)

test('the events of one stream come again in their order, from a place on', () => {
  const log = new ReplayLog({ events: 100, bytes: 100 })
  for (let sequence = 1; sequence <= 3; sequence++) {
    for (const stream of [0, 7]) log.add({ stream, sequence, data: `${stream}.${sequence}` })
  }
  assert.deepEqual(held(log, 7, 0), ['7.1', '7.2', '7.3'])
  assert.deepEqual(held(log, 7, 2), ['7.3'])
  assert.deepEqual(held(log, 7, 3), [])
  assert.deepEqual(held(log, 1, 0), [])
})

test('the oldest events go first, over all streams', () => {
  const log = new ReplayLog({ events: 3, bytes: 1_000 })
  for (let sequence = 1; sequence <= 4; sequence++)
    log.add({ stream: sequence % 2, sequence, data: `${sequence}` })
  assert.deepEqual(held(log, 1, 0), ['3'])
  assert.deepEqual(held(log, 0, 0), ['2', '4'])
})

test('no more is kept than the limit of bytes, which an event of its own may exceed', () => {
  const log = new ReplayLog({ events: 100, bytes: 10 })
  for (const [sequence, data] of ['aaaa', 'bbbb', 'cccc'].entries()) log.add({ stream: 0, sequence, data })
  assert.deepEqual(held(log, 0, -1), ['bbbb', 'cccc'])
  log.add({ stream: 0, sequence: 3, data: 'x'.repeat(11) })
  assert.deepEqual(held(log, 0, -1), [])
  log.add({ stream: 0, sequence: 4, data: 'd' })
  assert.deepEqual(held(log, 0, -1), ['d'])
})

test('bytes are counted, not characters', () => {
  const log = new ReplayLog({ events: 100, bytes: 10 })
  for (const sequence of [0, 1, 2]) log.add({ stream: 0, sequence, data: '😀' })
  assert.equal(held(log, 0, -1).length, 2)
})
