import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WriteQueue, type WriteQueueParts } from '../../src/mesh/write-queue.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** A queue of texts before a disk that accepts writes while `works` is true. */
function setUp(more: Partial<WriteQueueParts<string>> = {}) {
  const clock = new ManualClock()
  const disk = { works: true, batches: [] as string[][], errors: [] as string[], dropped: 0 }
  const queue = new WriteQueue<string>({
    clock,
    most: 10,
    mostFailing: 4,
    sizeOf: (text) => text.length,
    batch: 3,
    write: async (texts) => {
      if (!disk.works) throw new Error('no space left')
      disk.batches.push([...texts])
    },
    onError: (why) => void disk.errors.push(why),
    onDropped: (count) => void (disk.dropped += count),
    ...more,
  })
  return { clock, disk, queue }
}

test('waiting entries are written together, a moment later and in order', async () => {
  const { clock, disk, queue } = setUp()
  for (const text of ['a', 'b', 'c', 'd']) queue.add(text)
  assert.deepEqual(disk.batches, [])
  await clock.advance(100)
  assert.deepEqual(disk.batches, [['a', 'b', 'c'], ['d']])
  assert.equal(clock.pending, 0)
})

test('entries beyond the limit are dropped and counted, by their size', async () => {
  const { disk, queue } = setUp()
  for (const text of ['12345', '12345', '1', '']) queue.add(text)
  await queue.close()
  assert.equal(disk.dropped, 1)
  assert.deepEqual(disk.batches, [['12345', '12345', '']])
})

test('a disk that refuses is asked again a second later, and told of once; meanwhile less waits', async () => {
  const { clock, disk, queue } = setUp()
  disk.works = false
  for (const text of ['12', '34', '56', '78']) queue.add(text)
  await clock.advance(100)
  queue.add('9')
  await clock.advance(1_000)
  assert.deepEqual([disk.dropped, disk.errors], [3, ['no space left']])
  disk.works = true
  await clock.advance(1_000)
  assert.deepEqual(disk.batches, [['12', '34']])
  queue.add('a')
  await queue.close()
  assert.deepEqual(disk.batches, [['12', '34'], ['a']])
})

test('entries that the disk refuses at the end are lost, and counted', async () => {
  const { clock, disk, queue } = setUp()
  disk.works = false
  queue.add('a')
  await queue.close()
  assert.equal(disk.dropped, 1)
  assert.equal(clock.pending, 0)
})

test('entries after the end are dropped and counted, even while earlier entries are still being written', async () => {
  const { clock, disk, queue } = setUp()
  queue.add('a')
  const closing = queue.close()
  queue.add('b')
  await closing
  queue.add('c')
  await clock.advance(100)
  await queue.close()
  assert.deepEqual([disk.batches, disk.dropped, clock.pending], [[['a']], 2, 0])
})

test('a written entry is not written again when a following write fails', async () => {
  let fails = true
  const { clock, disk, queue } = setUp({
    written: async () => {
      if (fails) throw new Error('no head')
    },
  })
  queue.add('a')
  await clock.advance(100)
  fails = false
  queue.add('b')
  await queue.close()
  assert.deepEqual(disk.batches, [['a'], ['b']])
  assert.deepEqual(disk.errors, ['no head'])
})
