import assert from 'node:assert/strict'
import { test } from 'node:test'
import { serverRequestFaults } from '../../../src/chaos/faults/server-requests.ts'
import type { Message, Outcome, Service } from '../../../src/mesh/call.ts'
import { TestChannel, toolCall } from '../../support/caller.ts'
import { answerOf, testInjection } from '../../support/injection.ts'

const fault = serverRequestFaults['server_request.unanswered']
const replies = {
  'elicitation/create': '{"action":"accept"}',
  'sampling/createMessage': '{"role":"assistant"}',
}

const asking = (method: string): Message => ({ text: '{}', value: { jsonrpc: '2.0', id: 7, method } })

/** A server that asks, and answers the call after the agent's reply or at the end of `patience`. */
function server(method: string, patience: Promise<unknown>) {
  const answers: string[] = []
  const service: Service = (call) =>
    new Promise<Outcome>((resolve) => {
      const done = (text: string) =>
        resolve(answerOf(`{"jsonrpc":"2.0","id":"a","result":{"was":"${text}"}}`, 200))
      void patience.then(() => done('given up'))
      void call.channel.send({ text: '{}', value: { jsonrpc: '2.0', method: 'notifications/message' } })
      void call.channel.send(asking(method), (text) => {
        answers.push(text)
        done('answered')
        return Promise.resolve()
      })
    })
  return { service, answers }
}

const resultOf = (outcome: Outcome) => (outcome.kind === 'answered' ? outcome.result.value.result : outcome)

for (const [lost, asked] of [
  ['request', 0],
  ['answer', 1],
] as const) {
  test(`the ${lost} is lost: the server waits in vain, and all else passes`, async () => {
    const injection = testInjection()
    const channel = new TestChannel(replies)
    const { service, answers } = server('elicitation/create', Promise.resolve())
    const layer = fault.layer(fault.schema.parse({ lost }), injection)
    const outcome = await layer(service)(toolCall('ask', {}, { channel }))
    assert.deepEqual(resultOf(outcome), { was: 'given up' })
    assert.equal(channel.of('elicitation/create').length, asked)
    assert.equal(channel.of('notifications/message').length, 1)
    assert.deepEqual(answers, [])
    assert.deepEqual(injection.notes, [{ lost, asked: ['elicitation/create'] }])
  })

  test(`once the fault has ended, the ${lost} that was held back goes on`, async () => {
    const injection = testInjection()
    const channel = new TestChannel(replies)
    const { service, answers } = server('sampling/createMessage', new Promise(() => undefined))
    const layer = fault.layer(fault.schema.parse({ lost }), injection)
    const outcome = layer(service)(toolCall('ask', {}, { channel }))
    injection.release()
    assert.deepEqual(resultOf(await outcome), { was: 'answered' })
    assert.equal(answers.length, 1)
  })
}

test('other requests than the named requests are answered, and the fault does nothing', async () => {
  const injection = testInjection()
  const { service, answers } = server('sampling/createMessage', new Promise(() => undefined))
  const layer = fault.layer(fault.schema.parse({ ask: 'elicitation/create' }), injection)
  const outcome = await layer(service)(toolCall('ask', {}, { channel: new TestChannel(replies) }))
  assert.deepEqual(resultOf(outcome), { was: 'answered' })
  assert.equal(answers.length, 1)
  assert.deepEqual(injection.inapplicable, ['the server asked nothing'])
})
