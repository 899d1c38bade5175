import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { sessionFaults } from '../../../src/chaos/faults/session.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { answering, testInjection } from '../../support/injection.ts'

const lost = sessionFaults['session.lost']
const answer = answering({ content: [] })

test('the session is lost before the call goes to the server, which says so itself', async () => {
  const order: string[] = []
  const call = toolCall('search', {}, { server: 'files' })
  const injection = testInjection({
    faultEnvironment: {
      loseSession(server, caller) {
        order.push(`${server} forgets ${caller.id}`)
        return true
      },
    },
  })
  const outcome = await lost.layer(
    lost.schema.parse({}),
    injection,
  )((sent) => {
    order.push('sent')
    return answer(sent)
  })(call)
  assert.deepEqual(order, [`files forgets ${call.caller.id}`, 'sent'])
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(injection.notes, [{ lost: 'session' }])
})

test('without a session, no session is lost', async () => {
  const injection = testInjection({ faultEnvironment: { loseSession: () => false } })
  assert.equal(
    (await lost.layer(lost.schema.parse({}), injection)(answer)(toolCall('search'))).kind,
    'answered',
  )
  assert.deepEqual(injection.inapplicable, ['the caller has no session with the server'])
})

for (const [status, code] of [
  [404, -32001],
  [400, -32000],
] as const) {
  test(`an agent hears with HTTP ${status} that its session is gone, in the words of SDK servers`, async () => {
    const injection = testInjection({ side: 'client' })
    const call = toolCall('x')
    await lost.layer(lost.schema.parse({ status }), injection)(() => assert.fail('must not be sent'))(call)
    assert.equal(injection.replies[0]?.status, status)
    const body = JSON.parse(injection.replies[0]?.body ?? '')
    assert.deepEqual([body.id, body.error.code], [null, code])
    // Gateways and SDKs recognise this common bug by the word "session".
    assert.match(String(body.error.message), /session/i)
    assert.deepEqual(injection.faultEnvironment.lost, [])
  })
}

test('an agent of the modern era has no session to lose', async () => {
  const injection = testInjection({ side: 'client' })
  const call = toolCall('search', {}, { caller: new TestCaller({ era: 'modern' }) })
  assert.equal((await lost.layer(lost.schema.parse({}), injection)(answer)(call)).kind, 'answered')
  assert.equal(injection.inapplicable.length, 1)
})

test('only servers of the legacy era behind HTTP have sessions', () => {
  assert.equal(refusalOf(lost, { transport: 'http', era: 'legacy' }), undefined)
  assert.equal(refusalOf(lost, { transport: 'http', era: undefined }), undefined)
  assert.match(refusalOf(lost, { transport: 'http', era: 'modern' }) ?? '', /modern/)
  assert.match(refusalOf(lost, { transport: 'stdio', era: 'legacy' }) ?? '', /stdio/)
})
