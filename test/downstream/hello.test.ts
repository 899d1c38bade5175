import assert from 'node:assert/strict'
import { test } from 'node:test'
import { greetingBytes, Greetings, MAX_HELLO_VALUES, tooMuchToSay } from '../../src/downstream/hello.ts'

const fault = (params: unknown) => tooMuchToSay(JSON.stringify({ params }), [params], ['params'])

test('what a client says of itself may have 256 members and elements, however short its text is', () => {
  const empty = (count: number) => Array.from({ length: count }, () => ({}))
  assert.equal(fault({ a: empty(MAX_HELLO_VALUES - 1) }), undefined)
  const why = 'Invalid params: params have too many members and elements (at most 256)'
  assert.equal(fault({ a: empty(MAX_HELLO_VALUES) }), why)
  assert.equal(fault({ a: { b: [{ c: empty(128) }], d: empty(128) } }), why)
  const members = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`k${n}`, 1]))
  assert.equal(fault(members), why)
})

test('values at several places count together', () => {
  const half = Array.from({ length: 129 }, () => 0)
  assert.match(tooMuchToSay('{}', [half, half], ['a'], ['b']) ?? '', /^Invalid params: a and b have too many/)
  assert.equal(tooMuchToSay('{}', [half, undefined], ['a'], ['b']), undefined)
})

test('greetings of one client, and of all, are bounded in bytes, and given back once', () => {
  const refused: string[] = []
  const greetings = new Greetings((limit) => refused.push(limit), { total: 250, perClient: 100 })
  const [a, b, c] = [{}, {}, {}]
  greetings.take(a, 'one', 100)
  assert.match(greetings.refusal('one', 1)?.message ?? '', /of this client is too much \(at most 100 bytes\)/)
  greetings.take(b, 'two', 100)
  assert.match(greetings.refusal('three', 51)?.message ?? '', /too much \(at most 250 bytes\)/)
  assert.equal(greetings.refusal('three', 50), undefined)
  greetings.take(c, 'three', 50)
  for (const owner of [a, a, b, c, b]) greetings.release(owner)
  assert.equal(greetings.bytes, 0)
  assert.equal(greetings.refusal('one', 100), undefined)
  assert.deepEqual(refused, ['greetings_per_client', 'greetings'])
})

test('an ordinary greeting takes so little that there is room for more sessions than there may be', () => {
  const hello = {
    protocolVersion: '2025-11-25',
    capabilities: { roots: { listChanged: true }, sampling: {}, elicitation: {} },
    clientInfo: { name: 'an-agent', title: 'An agent', version: '1.2.3' },
  }
  const headers = { host: '127.0.0.1:8080', accept: 'application/json, text/event-stream' }
  assert.ok(greetingBytes(hello, headers) < (64 * 1024 ** 2) / 10_000)
})
