import { test } from 'node:test'
import type { RawReply } from '../../../../src/chaos/fault.ts'
import { duplicate, wrongId } from '../../../../src/chaos/faults/rpc.ts'
import type { Call, Outcome } from '../../../../src/mesh/call.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { parseJson } from '../../../../src/protocol/jsonrpc.ts'
import { SseDecoder } from '../../../../src/protocol/sse.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [], big: 1 })

for (const side of ['upstream', 'client'] as const) {
  test(`the real reply comes under the id of another request (${side})`, async () => {
    for (const id of [7, 'seven']) {
      const injection = testInjection({ side })
      const outcome = await wrongId.layer({}, injection)(answer)(toolCall('echo', {}, { id }))
      const value = parseJson(injection.replies[0]?.body ?? '') as Record<string, unknown>
      assert.deepEqual(value, { jsonrpc: '2.0', id: `${id}-other`, result: { content: [], big: 1 } })
      assert.equal(outcome.wire !== undefined, side === 'client')
      assert.deepEqual(injection.notes, [{ id: `${id}-other` }])
    }
  })
}

test('the reply counts once, and its double is read as an answer without a call', async () => {
  const bodies: string[] = []
  const error = gatewayError('bad_reply', 'the server answered a different request', { sent: true })
  const read = (_: Call, { body }: RawReply): Outcome => {
    bodies.push(body)
    return { kind: 'failed', error }
  }
  const injection = testInjection({ faultEnvironment: { read } })
  const call = toolCall('echo', {}, { id: 3 })
  assert.deepEqual(await duplicate.layer({}, injection)(answer)(call), await answer(call))
  const values = bodies.map((body) => parseJson(body))
  assert.deepEqual(values, [{ jsonrpc: '2.0', id: '3-over', result: { content: [], big: 1 } }])
  assert.deepEqual(injection.notes, [{ effect: 'orphan' }, { discarded: 'bad_reply' }])
})

test('transports discard a double unnoticed, as an answer without a call', async () => {
  const injection = testInjection()
  await duplicate.layer({}, injection)(answer)(toolCall('echo', {}, { id: 3 }))
  assert.equal(injection.faultEnvironment.told.length, 0)
})

test('the agent gets the reply and its double as events of one stream, and the call counts as answered', async () => {
  const injection = testInjection({ side: 'client' })
  const call = toolCall('echo')
  const outcome = await duplicate.layer({}, injection)(answer)(call)
  const events: string[] = []
  new SseDecoder(10_000, ({ data }) => void events.push(data)).feed(Buffer.from(outcome.wire?.body ?? ''))
  const reply = await answer(call)
  const text = reply.kind === 'answered' ? reply.result.text : undefined
  assert.deepEqual(events, [text, text])
  assert.equal(outcome.wire?.headers?.['content-type'], 'text/event-stream')
  assert.equal(outcome.kind, 'answered')
  assert.equal(injection.faultEnvironment.told.length, 0)
})

test('the stream to the agent begins no earlier than its first message, and a reply behind one stays whole', async () => {
  for (const fault of [duplicate, wrongId]) {
    const injection = testInjection({ side: 'client' })
    const opened: string[] = []
    const channel = { open: () => void opened.push('open'), pause: () => undefined, send: () => undefined }
    const call = toolCall('echo', {}, { channel })
    const outcome = await fault.layer(
      {},
      injection,
    )((sent) => {
      sent.channel.open()
      call.record.firstByteAt = 1
      return answer(sent)
    })(call)
    assert.deepEqual([opened, outcome], [[], await answer(call)])
    assert.equal(injection.inapplicable.length, 1)
  }
})
