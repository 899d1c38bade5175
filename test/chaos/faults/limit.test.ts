import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { limitFaults } from '../../../src/chaos/faults/limit.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testInjection, type TestInjectionParts } from '../../support/injection.ts'

const tooMany = limitFaults['limit.429']

async function told(config: object, parts: TestInjectionParts = {}) {
  const injection = testInjection(parts)
  await injection.clock.advance(250)
  const call = toolCall('search', {}, { id: 'call 9' })
  await tooMany.layer(tooMany.schema.parse(config), injection)(() => assert.fail('must not be sent'))(call)
  const [reply] = injection.replies
  assert.ok(reply)
  return { injection, reply }
}

for (const side of ['upstream', 'client'] as const) {
  test(`a 429 carries no id and a retry time, because the sender has not read the call (${side})`, async () => {
    const { reply, injection } = await told({}, { side })
    assert.equal(reply.status, 429)
    assert.equal(reply.headers['retry-after'], '1')
    assert.equal(JSON.parse(reply.body).id, null)
    assert.deepEqual(injection.notes, [{ status: 429, retryAfter: '1' }])
  })
}

test('Retry-After has the form that was asked for, in whole seconds', async () => {
  const header = async (config: object) => (await told(config)).reply.headers['retry-after']
  assert.equal(await header({ retryAfter: '1500ms' }), '2')
  assert.equal(await header({ retryAfter: 0 }), '0')
  // The clock of the test stands at a quarter of a second past midnight.
  assert.equal(await header({ retryAfter: '90s', form: 'date' }), 'Thu, 01 Jan 2026 00:01:31 GMT')
  assert.equal(await header({ form: 'absent' }), undefined)
  assert.ok(Number(await header({ form: 'absurd' })) > 86_400 * 365)
})

test('a rate limit lets its calls a second through, for each server separately', async () => {
  const injection = testInjection()
  const service = tooMany.layer(tooMany.schema.parse({ perSecond: 2 }), injection)(answering({ content: [] }))
  const send = async (server: string) => (await service(toolCall('search', {}, { server }))).kind
  assert.deepEqual(
    [await send('a'), await send('a'), await send('a'), await send('b')],
    ['answered', 'answered', 'failed', 'answered'],
  )
  await injection.clock.advance(1_000)
  assert.equal(await send('a'), 'answered')
  assert.equal(injection.replies.length, 1)
  assert.equal(injection.inapplicable[0], 'within 2 calls a second')
})

test('a stdio server has no HTTP status', async () => {
  const kind = { transport: 'stdio', era: 'legacy' } as const
  assert.equal(refusalOf(tooMany, kind), 'stdio has no HTTP status')
  const injection = testInjection({ faultEnvironment: { kindOf: () => kind } })
  const service = tooMany.layer(tooMany.schema.parse({}), injection)(answering({ content: [] }))
  assert.equal((await service(toolCall('search'))).kind, 'answered')
})
