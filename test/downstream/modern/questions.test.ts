import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Questions } from '../../../src/downstream/modern/exchange.ts'
import { METHOD_NOT_FOUND } from '../../../src/protocol/jsonrpc.ts'
import { MISSING_CAPABILITY } from '../../../src/protocol/modern.ts'
import { message } from './test-modern.ts'

/** The questions of a call whose client can be asked for its roots, and what their server got to hear. */
function questions() {
  const heard: string[] = []
  const open = new Questions({ roots: {} })
  const ask = (method: string, params?: object) =>
    open.ask(message({ id: 1, method, ...(params && { params }) }), {
      answer: (text) => Promise.resolve(void heard.push(text)),
      withdrawn: () => heard.push('withdrawn'),
    })
  return { open, ask, heard }
}

test('a question that the client can answer is kept until it has done so', () => {
  const { open, ask, heard } = questions()
  assert.equal(ask('roots/list', { deep: 1 }), true)
  assert.equal(ask('roots/list'), true)
  assert.deepEqual(JSON.parse(open.put('state')), {
    resultType: 'input_required',
    inputRequests: {
      'roots-1': { method: 'roots/list', params: { deep: 1 } },
      'roots-2': { method: 'roots/list' },
    },
    requestState: 'state',
  })
  const responses = '{"roots-2":{"n":1.50,"roots":[]},"roots-9":{}}'
  open.answer(`{"params":{"inputResponses":${responses}}}`, { 'roots-2': {}, 'roots-9': {} })
  assert.deepEqual(heard, ['{"jsonrpc":"2.0","id":0,"result":{"n":1.50,"roots":[]}}'])
  assert.equal(open.size, 1)
})

test('what is not for the client to answer is answered in its place', () => {
  const { open, ask, heard } = questions()
  for (const method of ['ping', 'tasks/list', 'sampling/createMessage']) assert.equal(ask(method), false)
  const codes = heard.map((text) => (JSON.parse(text) as { error?: { code: number } }).error?.code)
  assert.deepEqual(codes, [undefined, METHOD_NOT_FOUND, MISSING_CAPABILITY])
  assert.equal(open.size, 0)
})

test('a question that its server takes back is not asked again, and an answer to it is dropped', () => {
  const { open, ask, heard } = questions()
  ask('roots/list')
  const cancelled = (requestId: unknown) =>
    message({ method: 'notifications/cancelled', params: { requestId } })
  for (const id of ['1', 2, undefined]) open.withdraw(cancelled(id))
  assert.equal(open.size, 1)
  for (let twice = 0; twice < 2; twice++) open.withdraw(cancelled(1))
  open.answer('{"params":{"inputResponses":{"roots-1":{}}}}', { 'roots-1': {} })
  assert.deepEqual(heard, ['withdrawn'])
  assert.equal(open.size, 0)
})

test('after ten rounds nothing more is asked', () => {
  const { open, ask, heard } = questions()
  for (let round = 1; round <= 10; round++) {
    assert.equal(ask('roots/list'), true)
    open.put('state')
  }
  assert.equal(ask('roots/list'), false)
  assert.match(heard[0] ?? '', /more than 10 rounds/)
})
