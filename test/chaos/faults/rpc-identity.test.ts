import assert from 'node:assert/strict'
import { test } from 'node:test'
import { duplicate, wrongId } from '../../../src/chaos/faults/rpc-identity.ts'
import { parseJson } from '../../../src/protocol/jsonrpc.ts'
import { SseDecoder } from '../../../src/protocol/sse.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testShot } from '../../support/shot.ts'

const answer = answering({ content: [], big: 1 })

for (const side of ['upstream', 'client'] as const) {
  test(`the real reply comes under the id of another request (${side})`, async () => {
    for (const id of [7, 'seven']) {
      const shot = testShot({ side })
      const outcome = await wrongId.layer({}, shot)(answer)(toolCall('echo', {}, { id }))
      const value = parseJson(shot.replies[0]?.body ?? '') as Record<string, unknown>
      assert.deepEqual(value, { jsonrpc: '2.0', id: `${id}-other`, result: { content: [], big: 1 } })
      assert.equal(outcome.wire !== undefined, side === 'client')
      assert.deepEqual(shot.notes, [{ id: `${id}-other` }])
    }
  })
}

test('the reply counts once, and its double reaches the gateway as what no call waits for', async () => {
  const shot = testShot()
  const call = toolCall('echo', {}, { id: 3, server: 'search' })
  assert.deepEqual(await duplicate.layer({}, shot)(answer)(call), await answer(call))
  const [told] = shot.world.told
  assert.equal(told?.server, 'search')
  assert.deepEqual(told?.message.value, parseJson(told?.message.text ?? ''))
  assert.deepEqual(told?.message.value.result, { content: [], big: 1 })
  assert.deepEqual(shot.notes, [{ effect: 'orphan' }])
})

test('a double cannot be taken for the answer to a call that the gateway numbered alike', async () => {
  const shot = testShot()
  await duplicate.layer({}, shot)(answer)(toolCall('echo', {}, { id: 3 }))
  assert.equal(shot.world.told[0]?.message.value.id, '3')
})

test('the agent gets both as events of one stream, and the call counts as answered', async () => {
  const shot = testShot({ side: 'client' })
  const call = toolCall('echo')
  const outcome = await duplicate.layer({}, shot)(answer)(call)
  const events: string[] = []
  new SseDecoder(10_000, ({ data }) => void events.push(data)).feed(Buffer.from(outcome.wire?.body ?? ''))
  const reply = await answer(call)
  const text = reply.kind === 'answered' ? reply.result.text : undefined
  assert.deepEqual(events, [text, text])
  assert.equal(outcome.wire?.headers?.['content-type'], 'text/event-stream')
  assert.equal(outcome.kind, 'answered')
  assert.equal(shot.world.told.length, 0)
})
