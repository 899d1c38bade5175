import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Questions } from '../../../src/downstream/modern/call.ts'
import { INTERNAL_ERROR, METHOD_NOT_FOUND } from '../../../src/protocol/jsonrpc.ts'
import { MISSING_CAPABILITY } from '../../../src/protocol/versions.ts'
import { message } from './test-modern.ts'

/** The questions of a call whose client can list roots, the answers its server gets, and the memory left. */
function questions(bytes = Infinity) {
  const heard: string[] = []
  const room = {
    left: bytes,
    take(bytes: number) {
      if (bytes > room.left) return false
      room.left -= bytes
      return true
    },
    release: (bytes: number) => void (room.left += bytes),
  }
  const open = new Questions({ roots: {} }, room)
  const ask = (method: string, params?: object) =>
    open.ask(message({ id: 1, method, ...(params && { params }) }), {
      answer: (text) => Promise.resolve(void heard.push(text)),
      withdrawn: () => heard.push('withdrawn'),
    })
  return { open, ask, heard, room }
}

const codeOf = (text = '{}') => (JSON.parse(text) as { error?: { code: number } }).error?.code

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

test('the gateway answers questions that are not for the client', () => {
  const { open, ask, heard } = questions()
  for (const method of ['ping', 'tasks/list', 'sampling/createMessage']) assert.equal(ask(method), false)
  assert.deepEqual(heard.map(codeOf), [undefined, METHOD_NOT_FOUND, MISSING_CAPABILITY])
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

test('a client owes at most a hundred answers in a call, and its server hears of the next question as one too many', () => {
  const { open, ask, heard } = questions()
  for (let n = 0; n < 100; n++) assert.equal(ask('roots/list'), true)
  assert.equal(ask('roots/list'), false)
  assert.deepEqual([open.size, heard.map(codeOf)], [100, [INTERNAL_ERROR]])
  open.answer('{"params":{"inputResponses":{"roots-1":{}}}}', { 'roots-1': {} })
  assert.equal(ask('roots/list'), true)
})

test('questions take room, which is given back by an answer, by the server, and by the end of the call', () => {
  const { open, ask, heard, room } = questions(250)
  const deep = { deep: 'x'.repeat(60) }
  for (let n = 0; n < 2; n++) assert.equal(ask('roots/list', deep), true)
  assert.equal(ask('roots/list', deep), false)
  assert.deepEqual(heard.map(codeOf), [INTERNAL_ERROR])
  open.answer('{"params":{"inputResponses":{"roots-1":{}}}}', { 'roots-1': {} })
  assert.equal(ask('roots/list', deep), true)
  open.withdraw(message({ method: 'notifications/cancelled', params: { requestId: 1 } }))
  open.end()
  assert.deepEqual([open.size, room.left], [0, 250])
})

test('unrequested answers cost linear time', () => {
  const { open, ask } = questions()
  for (let n = 0; n < 100; n++) ask('roots/list')
  const timeOf = (count: number) => {
    const responses = Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, {}]))
    const text = JSON.stringify({ params: { inputResponses: responses } })
    const { user } = process.cpuUsage()
    for (let again = 0; again < 3; again++) open.answer(text, responses)
    return process.cpuUsage().user - user
  }
  timeOf(1_000)
  const [few, many] = [timeOf(2_000), timeOf(20_000)]
  // With quadratic work, ten times as many would take a hundred times as long.
  assert.ok(many < 40 * Math.max(few, 2_000), `${few} µs, then ${many} µs`)
})
