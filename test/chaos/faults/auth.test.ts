import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { authFaults } from '../../../src/chaos/faults/auth.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, faultLayer, testInjection } from '../../support/injection.ts'

const expired = authFaults['auth.expired']
const scope = authFaults['auth.scope']
const answer = answering({ content: [] })
const unsent = () => assert.fail('must not be sent')

for (const side of ['upstream', 'client'] as const) {
  test(`an expired token gives a 401 with this reason (${side})`, async () => {
    const injection = testInjection({ side })
    await expired.layer(expired.schema.parse({}), injection)(unsent)(toolCall('search'))
    const [reply] = injection.replies
    assert.equal(reply?.status, 401)
    assert.match(reply?.headers['www-authenticate'] ?? '', /^Bearer error="invalid_token"/)
    assert.equal(JSON.parse(reply?.body ?? '').error, 'invalid_token')
    assert.deepEqual(injection.notes, [{ status: 401, error: 'invalid_token' }])
  })

  test(`a token with too narrow a scope gives a 403 that names the scope (${side})`, async () => {
    const injection = testInjection({ side })
    await scope.layer(scope.schema.parse({ scope: 'files:read files:write' }), injection)(unsent)(
      toolCall('search'),
    )
    const [reply] = injection.replies
    assert.equal(reply?.status, 403)
    assert.match(
      reply?.headers['www-authenticate'] ?? '',
      /^Bearer error="insufficient_scope", .*, scope="files:read files:write"$/,
    )
  })
}

test('a token is valid for a while, and not for longer', async () => {
  const injection = testInjection()
  const layer = expired.layer(expired.schema.parse({ after: '30s' }), injection)(answer)
  assert.equal((await layer(toolCall('search'))).kind, 'answered')
  await injection.clock.advance(29_000)
  assert.equal((await layer(toolCall('search'))).kind, 'answered')
  assert.equal(injection.inapplicable.at(-1), 'the token holds for another 1s')
  await injection.clock.advance(1_000)
  assert.equal((await layer(toolCall('search'))).kind, 'failed')
  assert.equal(injection.replies.length, 1)
})

test('a scope that would break the header is refused', () => {
  for (const bad of ['a"b', 'a\nb', ' a', '']) {
    assert.throws(() => scope.schema.parse({ scope: bad }), `${JSON.stringify(bad)} was taken`)
  }
})

test('the fault has no status to send from a stdio server, but has one to send to an agent', async () => {
  const kind = { transport: 'stdio', era: 'legacy' } as const
  for (const fault of [expired, scope]) {
    assert.equal(refusalOf(fault, kind), 'stdio has no HTTP status')
    const upstream = testInjection({ faultEnvironment: { kindOf: () => kind } })
    assert.equal((await faultLayer(fault, {}, upstream)(answer)(toolCall('x'))).kind, 'answered')
    assert.deepEqual(upstream.inapplicable, ['stdio has no HTTP status'])
    const client = testInjection({ side: 'client', faultEnvironment: { kindOf: () => kind } })
    await faultLayer(fault, {}, client)(unsent)(toolCall('x'))
    assert.equal(client.replies.length, 1)
  }
})

test('a token of another owner gets an error, a "not found", or the answer for the other owner', async () => {
  const injection = testInjection()
  const results = []
  for (const as of ['forbidden', 'not_found', 'other_result']) {
    const layer = faultLayer(authFaults['auth.owner_changed'], { as }, injection)
    const outcome = await layer(unsent)(toolCall('search'))
    results.push(outcome.kind === 'answered' ? outcome.result.value.result : undefined)
  }
  assert.deepEqual(results, [
    undefined,
    { content: [{ type: 'text', text: 'Not found' }], isError: true },
    { content: [{ type: 'text', text: 'No entries.' }] },
  ])
  assert.equal(injection.replies[0]?.status, 403)
})

test('the first token is accepted, the next token is refused, and no note contains a token', async () => {
  const injection = testInjection({ side: 'client' })
  const layer = faultLayer(authFaults['auth.refresh_refused'], {}, injection)(answer)
  const kinds = []
  for (const token of ['old', 'old', 'new']) {
    const { kind } = await layer(
      toolCall('search', {}, { inbound: { authorization: `Bearer s3same-${token}` } }),
    )
    kinds.push(kind)
  }
  assert.deepEqual(kinds, ['answered', 'answered', 'failed'])
  assert.equal(injection.replies[0]?.status, 401)
  assert.doesNotMatch(JSON.stringify([injection.notes, injection.inapplicable, injection.replies]), /s3same/)
})
