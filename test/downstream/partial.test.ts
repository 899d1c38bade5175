import assert from 'node:assert/strict'
import { test } from 'node:test'
import { modernise } from '../../src/downstream/modern/call.ts'
import { withPartial } from '../../src/downstream/respond.ts'
import type { Outcome, Partial } from '../../src/mesh/call.ts'
import { isStillBytes, largeMessage } from '../support/large-message.ts'

const stale: Partial = { source: 'stale', reason: 'this answer is 42 s old', notice: true }
const META = '{"dev.breakwater/partial":{"source":"stale","reason":"this answer is 42 s old"}}'
const BLOCK = '{"type":"text","text":"[partial result] this answer is 42 s old"}'

function flag(text: string, partial: Partial | undefined = stale) {
  const value = JSON.parse(text) as Record<string, unknown>
  const outcome = { kind: 'answered', result: { text, value, status: 203 }, verdict: 'unchecked' } as const
  const flagged = withPartial(partial === undefined ? outcome : { ...outcome, partial })
  assert.deepEqual(flagged.value, JSON.parse(flagged.text))
  assert.equal(flagged.status, 203)
  return flagged.text
}

test('a reply that is whole is the same object', () => {
  const result = { text: '{}', value: {}, status: 200 }
  const outcome: Outcome = { kind: 'answered', result, verdict: 'correct' }
  assert.equal(withPartial(outcome), result)
})

test('missing parts are named in _meta and in a separate block; every other byte stays', () => {
  assert.equal(
    flag('{ "id": 1.0, "result" : { "content": [ {"type":"text","text":"]"} ], "x": 1e2 } }'),
    `{ "id": 1.0, "result" : {"_meta":${META}, "content": [ {"type":"text","text":"]"},${BLOCK} ], "x": 1e2 } }`,
  )
  assert.equal(
    flag('{"id":1,"result":{"content":[ ],"_meta":{"other":1}}}'),
    `{"id":1,"result":{"content":[${BLOCK} ],"_meta":${META.replace('}}', '},"other":1}')}}}`,
  )
})

test('an entry that stands there already is replaced', () => {
  const text = '{"result":{"_meta":{"dev.breakwater/partial":{"source":"declared"},"z":0}}}'
  assert.equal(flag(text), text.replace('{"source":"declared"}', META.slice(26, -1)))
})

test('no block is added when no notice is wanted, or when there are no blocks', () => {
  const reply = '{"result":{"content":[]}}'
  assert.equal(flag(reply, { ...stale, notice: false }), `{"result":{"_meta":${META},"content":[]}}`)
  for (const members of ['"contents":[]', '"content":"x"', '"content":null', '"tools":[]'])
    assert.equal(flag(`{"result":{${members}}}`), `{"result":{"_meta":${META},${members}}}`)
})

test("a server's own flag, and an error, stay unchanged", () => {
  const reply = '{"id":1,"result":{"content":[]}}'
  assert.equal(flag(reply, { ...stale, source: 'declared' }), reply)
  const error = '{"id":1,"error":{"code":1,"message":"x"}}'
  assert.equal(flag(error), error)
})

test('the flag has all known facts about missing parts', () => {
  const partial: Partial = {
    source: 'detected',
    reason: 'rows 3 to 5',
    missing: ['/rows/3'],
    completeness: 0.6,
    notice: false,
  }
  const { result } = JSON.parse(flag('{"result":{}}', partial)) as { result: { _meta: object } }
  assert.deepEqual(result._meta, {
    'dev.breakwater/partial': {
      source: 'detected',
      reason: 'rows 3 to 5',
      missing: ['/rows/3'],
      completeness: 0.6,
    },
  })
})

test('a large reply is flagged as well, and stays bytes', () => {
  const text = `{"id":1,"result":{"content":[{"type":"text","text":"${'ü'.repeat(20_000)}"}]}}`
  const result = largeMessage(text)
  const flagged = withPartial({ kind: 'answered', result, verdict: 'unchecked', partial: stale })
  assert.ok(isStillBytes(flagged))
  assert.deepEqual(flagged.value, JSON.parse(flag(text)))
  assert.equal(flagged.text, flag(text))
})

test('a modern client gets the flag and the notice too', () => {
  const text = flag('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}')
  const modern = JSON.parse(modernise('tools/call', 'x', { text, status: 200 }).text) as { result: object }
  assert.deepEqual(modern.result, {
    resultType: 'complete',
    _meta: JSON.parse(META) as unknown,
    content: [JSON.parse(BLOCK) as unknown],
  })
})
