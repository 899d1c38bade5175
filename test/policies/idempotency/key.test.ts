import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { errorOf, keyed, read, setUp } from './keyed.ts'

const auto = { settings: { key: 'auto' } }

test('with automatic keys, the same arguments are the same call, for any sender', async () => {
  const { clock, server, send } = setUp(auto)
  const first = send(toolCall('tool', { a: 1, b: [{ c: 'x', d: null }] }))
  const second = send(toolCall('tool', { b: [{ d: null, c: 'x' }], a: 1 }))
  send(toolCall('tool', { a: 1, b: [{ c: 'x' }] }))
  send(toolCall('other', { a: 1, b: [{ c: 'x', d: null }] }))
  send({ ...toolCall('tool', { a: 1, b: [{ c: 'x', d: null }] }), headers: { 'x-user': 'bob' } })
  await clock.advance(0)
  assert.equal(server.calls.length, 4)
  server.answer(0)
  await clock.advance(0)
  assert.ok(read(first) && read(second))
})

test('with automatic keys, a key named by the caller still counts', async () => {
  const { clock, server, send } = setUp(auto)
  send(toolCall('tool'))
  send(keyed('k'))
  const other = send(keyed('k', { args: { a: 1 } }))
  await clock.advance(0)
  assert.equal(server.calls.length, 2)
  assert.equal(errorOf(other)?.reason, 'idempotency_conflict')
})

test('automatic keys are for calls that change something: joining others would be a cache', () => {
  const { server, send } = setUp({ ...auto, effect: 'read_only' })
  send(toolCall('tool'))
  send(toolCall('tool'))
  assert.equal(server.calls.length, 2)
})

test('numbers that are read alike and written differently are different arguments', () => {
  const { server, send } = setUp(auto)
  const numbers = ['12345678901234567890', '12345678901234567891', '1e400', '1e401', 'null', '0.1', '-0.1']
  for (const number of numbers) {
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":{"n":${number}}}}`
    send(toolCall('tool', {}, { text }))
    send(toolCall('tool', {}, { text }))
  }
  assert.equal(server.calls.length, numbers.length)
})

test('arguments of any depth have a key', () => {
  const { server, send } = setUp(auto)
  const nested = (inner: string) => `${'['.repeat(50_000)}${inner}${']'.repeat(50_000)}`
  for (const inner of ['1', '2', '1']) {
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":{"n":${nested(inner)}}}}`
    send(toolCall('tool', {}, { text }))
  }
  assert.equal(server.calls.length, 2)
})

test('calls whose answers have another shape are not answered with one another', async () => {
  const { clock, server, send } = setUp()
  send(keyed('k'))
  const modern = send(keyed('k', { caller: new TestCaller({ era: 'modern' }) }))
  const params = { name: 'tool', arguments: {}, task: {}, _meta: { 'dev.breakwater/idempotency-key': 'k' } }
  const task = send(keyed('k', { params }))
  await clock.advance(0)
  assert.equal(errorOf(modern)?.reason, 'idempotency_conflict')
  assert.equal(errorOf(task)?.reason, 'idempotency_conflict')
  assert.equal(server.calls.length, 1)
})

test('a call that comes again with another Authorization does not run again', async () => {
  for (const scope of ['caller', 'tenant', 'server'] as const)
    for (const key of ['explicit', 'auto'] as const) {
      const { clock, server, send } = setUp({ settings: { key, scope } })
      const caller = new TestCaller()
      for (const authorization of ['Bearer a', 'Bearer b', undefined]) {
        const parts = { caller, inbound: { authorization } }
        send(key === 'auto' ? toolCall('tool', {}, parts) : keyed('k', parts))
      }
      await clock.advance(0)
      assert.equal(server.calls.length, 1, `${scope} ${key}`)
    }
})

/** A call with this token, of an agent with or without a named tenant. */
const withToken = (token: string, isNamed: boolean) =>
  keyed('k', { inbound: { authorization: token, ...(isNamed && { 'x-breakwater-tenant': 'test' }) } })

for (const [title, scope, isNamed, gets] of [
  ['an agent with another token', 'tenant', false, false],
  ['an agent with another token of the same caller', 'caller', false, false],
  ['a tenant that is named, whatever its token,', 'tenant', true, true],
  ['everybody, where a key is one for all callers of a server,', 'server', false, true],
] as const)
  test(`${title} ${gets ? 'gets the answer' : 'is told that the call may have run, and gets no answer'}`, async () => {
    const { clock, server, send } = setUp({ settings: { scope } })
    const caller = new TestCaller()
    const sendWith = (token: string) => send({ ...withToken(token, isNamed), caller })
    const first = sendWith('Bearer a')
    const during = sendWith('Bearer b')
    server.answer(0)
    await clock.advance(0)
    const afterwards = sendWith('Bearer b')
    const own = sendWith('Bearer a')
    await clock.advance(0)
    assert.equal(server.calls.length, 1)
    assert.ok(read(first) && read(own))
    for (const sent of [during, afterwards]) {
      assert.equal(read(sent) !== undefined, gets)
      if (gets) continue
      // A rejection, so no failure counts against the server.
      assert.equal(sent.outcome?.kind, 'rejected')
      assert.deepEqual([errorOf(sent)?.reason, errorOf(sent)?.sent], ['idempotency_conflict', true])
      assert.match(
        String(errorOf(sent)?.message),
        /another Authorization: it may have run, and is not run again/,
      )
    }
  })
