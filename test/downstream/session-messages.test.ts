import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { holdResponses } from '../support/held-responses.ts'
import { until } from '../support/until.ts'
import { message, testSession } from './test-session.ts'

/** A session whose client listens, and the messages the client got. */
async function listening(
  t: Parameters<typeof holdResponses>[0],
  parts: Parameters<typeof testSession>[0] = {},
) {
  const { session, clock } = testSession(parts)
  const { response, client } = await (await holdResponses(t))()
  session.listen(response, undefined)
  return {
    session,
    clock,
    /** Waits for `count` messages, and returns their data. */
    async told(count: number): Promise<Record<string, unknown>[]> {
      await until(`${count} messages have come`, () => client.data.length >= count)
      return client.data.map((data) => JSON.parse(data) as Record<string, unknown>)
    },
  }
}

const changed = (data: number) => message({ method: 'notifications/tools/list_changed', params: { data } })

test('a burst of changes is told twice: the first change at once, the last at its end', async (t) => {
  const { session, clock, told } = await listening(t)
  const { pending } = clock
  for (let n = 1; n <= 50; n++) session.receive('s', changed(n))
  assert.equal((await told(1)).length, 1)
  await clock.advance(250)
  await clock.advance(10_000)
  assert.deepEqual(
    (await told(2)).map(({ params }) => params),
    [{ data: 1 }, { data: 50 }],
  )
  assert.equal(clock.pending, pending)
})

test('changes of different lists are told each for itself, and other messages all', async (t) => {
  const { session, told } = await listening(t)
  session.receive('s', changed(1))
  session.receive('s', message({ method: 'notifications/prompts/list_changed' }))
  for (let n = 0; n < 3; n++)
    session.receive('s', message({ method: 'notifications/message', params: { n } }))
  assert.equal((await told(5)).length, 5)
})

test('a question reaches the client under an id of ours, and a client that owes too much is not asked', async (t) => {
  const { session, told } = await listening(t)
  const refusals: string[] = []
  for (let n = 0; n <= 1_000; n++) {
    session.receive('s', message({ id: n, method: 'roots/list' }), (text) =>
      Promise.resolve(void refusals.push(text)),
    )
  }
  assert.equal(new Set((await told(1_000)).map(({ id }) => id)).size, 1_000)
  assert.equal(refusals.length, 1)
  assert.equal((JSON.parse(refusals[0] ?? '') as { error: { code: number } }).error.code, -32603)
})

test('a server that takes back a question is heard, and one that takes back nothing is not', async (t) => {
  const { session, told } = await listening(t)
  session.receive('s', message({ id: 7, method: 'roots/list' }), () => Promise.resolve())
  const cancelled = message({ method: 'notifications/cancelled', params: { requestId: 7 } })
  session.receive('other', cancelled)
  session.receive('s', cancelled)
  session.receive('s', cancelled)
  session.tell('{"last":true}')
  const [question, withdrawn, last] = await told(3)
  assert.deepEqual(withdrawn?.params, { requestId: question?.id })
  assert.deepEqual(last, { last: true })
})

test('messages the endpoint drops are not sent, and rewritten messages are sent rewritten', async (t) => {
  const inbound = (server: string, { value }: Message) =>
    value.method === 'dropped' ? undefined : message({ method: `${server}/${String(value.method)}` })
  const { session, told } = await listening(t, { inbound })
  for (const method of ['dropped', 'kept']) session.receive('s', message({ method }))
  assert.deepEqual(await told(1), [{ jsonrpc: '2.0', method: 's/kept' }])
})
