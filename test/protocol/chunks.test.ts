import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Chunks } from '../../src/protocol/chunks.ts'

test('chunks of all sizes are one text, whatever they cut in two', () => {
  const text = 'a€😀'.repeat(20_000)
  const bytes = Buffer.from(text)
  for (const size of [1, 2, 3, 7, 1_000, 4_096, 5_000, bytes.length]) {
    const chunks = new Chunks()
    for (let at = 0; at < bytes.length; at += size) chunks.add(bytes.subarray(at, at + size))
    assert.equal(chunks.length, bytes.length)
    assert.equal(chunks.take(), text)
    assert.equal(chunks.length, 0)
    assert.equal(chunks.take(), '')
  }
})

test('a large text in chunks of one byte takes little more memory than the text', () => {
  const chunks = new Chunks()
  const before = process.memoryUsage()
  for (let at = 0; at < 4_000_000; at++) chunks.add(Buffer.allocUnsafeSlow(1))
  const { heapUsed, external } = process.memoryUsage()
  const taken = heapUsed + external - before.heapUsed - before.external
  assert.ok(taken < 200_000_000, `${taken} bytes`)
  assert.equal(chunks.length, 4_000_000)
})

test('pieces of large buffers do not hold on to the buffers', () => {
  const chunks = new Chunks()
  const before = process.memoryUsage().arrayBuffers
  // Each smaller than the one before, so that none is joined with it.
  for (let size = 4_500; size > 500; size--) chunks.add(Buffer.allocUnsafeSlow(64 * 1024).subarray(0, size))
  globalThis.gc?.()
  const lengths = chunks.length
  const taken = process.memoryUsage().arrayBuffers - before
  assert.equal(chunks.take().length > 0, true)
  assert.ok(taken < 2 * lengths || globalThis.gc === undefined, `${taken} bytes for ${lengths}`)
})
