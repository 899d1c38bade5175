import assert from 'node:assert/strict'
import { test } from 'node:test'
import { drained } from '../src/downstream/event-stream.ts'
import { holdPipelined } from './support/held-responses.ts'
import { until } from './support/until.ts'

test('a response that waits for another one on its connection hears that its client has left', async (t) => {
  const { responses, client } = await holdPipelined(t, 3)
  const closed: number[] = []
  responses.forEach((response, index) => response.on('close', () => closed.push(index)))
  responses[1]?.write('x'.repeat(1024 ** 2))
  const mayGoOn = drained(responses[1]!)
  client.destroy()
  await mayGoOn
  await until('all have heard of it', () => closed.length === 3)
  assert.deepEqual(closed.toSorted(), [0, 1, 2])
  assert.deepEqual(
    responses.map(({ destroyed }) => destroyed),
    [true, true, true],
  )
})

test('each response of a connection hears once that it is over', async (t) => {
  const { responses, client } = await holdPipelined(t, 3)
  const closed: number[] = []
  responses.forEach((response, index) => response.on('close', () => closed.push(index)))
  client.resume()
  responses[1]?.end('second')
  responses[0]?.end('first')
  await until('two are sent', () => closed.length === 2)
  client.destroy()
  await until('all are over', () => closed.length === 3)
  assert.deepEqual(closed, [0, 1, 2])
})
