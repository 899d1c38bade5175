import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import { ManualClock } from '../support/manual-clock.ts'
import { lineWriter, modernHeaders, readLine } from '../../src/commands/run/stdio.ts'

test('a line is one message or a batch; its requests are those that want an answer', () => {
  const said = readLine(
    '[{"id":1,"method":"a"},{"method":"b"},{"id":"x","result":{}},{"id":"y","method":"c"}]',
    99,
  )
  assert.ok(typeof said === 'object')
  assert.deepEqual([...said.ids], [1, 'y'])
  assert.equal(said.messages.length, 4)
  assert.equal(readLine('  ', 99), undefined)
})

test('a line that is no JSON, or too long, is answered with an error', () => {
  assert.match(readLine('{"a":', 99) as string, /-32700/)
  assert.match(readLine({ head: '{', tail: '}' }, 99) as string, /larger than 99 bytes/)
})

test('a message of the modern era gets the headers that repeat it; others get none', () => {
  const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' }
  assert.deepEqual(modernHeaders({ method: 'tools/call', params: { name: 'größe', _meta } }), {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': `=?base64?${Buffer.from('größe').toString('base64')}?=`,
  })
  assert.equal(modernHeaders({ method: 'tools/call', params: { name: 'a' } }), undefined)
  assert.equal(modernHeaders(undefined), undefined)
})

test('the writer has room for a mebibyte, and the end waits for the reader', async () => {
  const clock = new ManualClock()
  const stream = new PassThrough({ highWaterMark: 8 })
  const { write, room, read } = lineWriter(stream)
  void write('x'.repeat(500_000))
  assert.equal(room(), undefined)
  void write('x'.repeat(600_000))
  const more = room()
  assert.ok(more instanceof Promise)
  let isOver = false
  const over = read(clock, 100).then(() => (isOver = true))
  await clock.advance(99)
  assert.equal(isOver, false)
  // A partial read restarts the timeout of the rest.
  stream.read(8)
  stream.resume()
  await Promise.all([more, over])
  assert.equal(room(), undefined)
  stream.pause()
  void write('x'.repeat(600_000))
  const givenUp = read(clock, 100)
  await clock.advance(200)
  await givenUp
})

test('a slow reader makes the writer wait, and a closed reader does not', async () => {
  const stream = new PassThrough({ highWaterMark: 8 })
  const { write, gone } = lineWriter(stream)
  assert.equal(write('short'), undefined)
  const waiting = write('much longer than that')
  assert.ok(waiting instanceof Promise)
  stream.resume()
  await waiting
  stream.pause()
  const stuck = write('much longer than that again')
  stream.destroy(new Error('EPIPE'))
  await Promise.all([stuck, gone])
  assert.equal(write('nobody reads this'), undefined)
})
