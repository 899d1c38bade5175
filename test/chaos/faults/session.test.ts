import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sessionFaults } from '../../../src/chaos/faults/session.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { answering, testShot } from '../../support/shot.ts'

const lost = sessionFaults['session.lost']
const answer = answering({ content: [] })

test('the session is lost before the call goes to the server, which says so itself', async () => {
  const order: string[] = []
  const call = toolCall('search', {}, { server: 'files' })
  const shot = testShot({
    world: {
      loseSession(server, caller) {
        order.push(`${server} forgets ${caller.id}`)
        return true
      },
    },
  })
  const outcome = await lost.layer(
    lost.schema.parse({}),
    shot,
  )((sent) => {
    order.push('sent')
    return answer(sent)
  })(call)
  assert.deepEqual(order, [`files forgets ${call.caller.id}`, 'sent'])
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(shot.notes, [{ lost: 'session' }])
})

test('where there is no session, none is lost', async () => {
  const shot = testShot({ world: { loseSession: () => false } })
  assert.equal((await lost.layer(lost.schema.parse({}), shot)(answer)(toolCall('search'))).kind, 'answered')
  assert.deepEqual(shot.inapplicable, ['the caller has no session with the server'])
})

for (const [status, code] of [
  [404, -32001],
  [400, -32000],
] as const) {
  test(`an agent is told with HTTP ${status} that its session is gone, as servers of the SDK say it`, async () => {
    const shot = testShot({ side: 'client' })
    const call = toolCall('x')
    await lost.layer(lost.schema.parse({ status }), shot)(() => assert.fail('must not be sent'))(call)
    assert.equal(shot.replies[0]?.status, status)
    const body = JSON.parse(shot.replies[0]?.body ?? '')
    assert.deepEqual([body.id, body.error.code], [null, code])
    // Gateways and SDKs tell the common bug from other bad requests by this word.
    assert.match(String(body.error.message), /session/i)
    assert.deepEqual(shot.world.lost, [])
  })
}

test('an agent of the modern era has no session to lose', async () => {
  const shot = testShot({ side: 'client' })
  const call = toolCall('search', {}, { caller: new TestCaller({ takesInputRequired: true }) })
  assert.equal((await lost.layer(lost.schema.parse({}), shot)(answer)(call)).kind, 'answered')
  assert.equal(shot.inapplicable.length, 1)
})

test('only servers of the legacy era behind HTTP have sessions', () => {
  assert.equal(lost.refuses?.({ transport: 'http', era: 'legacy' }), undefined)
  assert.equal(lost.refuses?.({ transport: 'http', era: undefined }), undefined)
  assert.match(lost.refuses?.({ transport: 'http', era: 'modern' }) ?? '', /modern/)
  assert.match(lost.refuses?.({ transport: 'stdio', era: 'legacy' }) ?? '', /stdio/)
})
