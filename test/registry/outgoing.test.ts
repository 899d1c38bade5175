import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Call, derive, type Outcome } from '../../src/mesh/call.ts'
import { exchangeOver } from '../../src/upstreams/sessions.ts'
import { newCall, TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { initializeResult, ScriptedSession } from '../support/scripted-upstream.ts'

const KEY = 'dev.breakwater/deadline-ms'

/** A conversation that answers everything, and its last call. */
function linkTo() {
  const upstreamSession = new ScriptedSession(new TestCaller(), initializeResult(), () => ({
    result: { big: 1 },
  }))
  const clock = new ManualClock()
  const sent = () => upstreamSession.calls.at(-1) as Call
  return { upstreamSession, clock, sent, send: (call: Call) => exchangeOver(upstreamSession, call, clock) }
}

const resultOf = (outcome: Outcome) => (outcome.kind === 'answered' ? outcome.result : assert.fail())

/** A request whose id is this JSON text. */
const textWith = (id: string) =>
  `{ "jsonrpc":"2.0", "id" : ${id}, "method":"tools/call","params":{"name":"t","arguments":{"x":1.0}}}`

test('a first try without a deadline of the agent is sent unchanged, as the same object', async () => {
  const { send, sent } = linkTo()
  const call = toolCall('t', {}, { deadline: { at: 1_000, reserveMs: undefined } })
  await send(call)
  assert.equal(sent(), call)
})

test('a server hears the rest of the deadline less the reserve, and nothing else changes', async () => {
  const { clock, send, sent } = linkTo()
  await clock.advance(100.4)
  const text = textWith('1')
  const call = newCall({ method: 'tools/call', text, deadline: { at: 1_000, reserveMs: 50 } })
  await send(call)
  assert.equal(sent().message.text, text.replace('{"name"', `{"_meta":{"${KEY}":849},"name"`))
  assert.deepEqual(sent().message.value, JSON.parse(sent().message.text))
  assert.equal(sent().id, call.id)
  assert.equal(call.message.text, text)
})

test("the agent's own word on the deadline is replaced in place", async () => {
  const { send, sent } = linkTo()
  const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"a":1.0, "${KEY}": 9e3},"name":"t"}}`
  await send(newCall({ method: 'tools/call', text, deadline: { at: 400, reserveMs: 0 } }))
  assert.equal(sent().message.text, text.replace('9e3', '400'))
})

test('a server without time left hears 1 ms, never 0', async () => {
  for (const at of [20, 0, -5_000]) {
    const { send, sent } = linkTo()
    await send(toolCall('t', {}, { deadline: { at, reserveMs: 50 } }))
    assert.deepEqual((sent().message.value.params as { _meta: unknown })._meta, { [KEY]: 1 })
  }
})

test('every further try goes out under an id that is new, and the answer carries that of the agent', async () => {
  const { send, sent } = linkTo()
  const ids = new Set<unknown>()
  for (const id of ['7', '"7"', '""', '-1', '9007199254740993', '12345678901234567890', '"\\u00e9\\n~1"'])
    for (const attempt of [2, 3]) {
      const text = textWith(id)
      const call = newCall({ method: 'tools/call', text, attempt })
      const { value, status, text: answer } = resultOf(await send(call))
      const outgoing = sent()
      assert.equal(outgoing.message.text, text.replace(id, JSON.stringify(outgoing.id)))
      assert.deepEqual(outgoing.message.value, JSON.parse(outgoing.message.text))
      assert.notEqual(outgoing.id, call.id)
      ids.add(outgoing.id)
      assert.equal(answer, `{"jsonrpc":"2.0","id":${id},"result":{"big":1}}`)
      assert.deepEqual([value.id, status], [call.id, 200])
    }
  assert.equal(ids.size, 14)
})

test('the HTTP status, the verdict and what else an outcome says survive the change of ids', async () => {
  const { upstreamSession, send } = linkTo()
  const value = { jsonrpc: '2.0', id: 'x', error: { code: -32603, message: 'no' } }
  const outcome: Outcome = {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 404 },
    verdict: 'rpc_error',
    partial: { source: 'declared', reason: 'r', notice: true },
  }
  upstreamSession.exchange = () => Promise.resolve(outcome)
  const got = await send(toolCall('t', {}, { attempt: 2, id: 5 }))
  assert.deepEqual(got, {
    ...outcome,
    result: { text: JSON.stringify({ ...value, id: 5 }), value: { ...value, id: 5 }, status: 404 },
  })
})

test('a further try with a deadline has both, and a failure comes back unchanged', async () => {
  const { upstreamSession, clock, send, sent } = linkTo()
  upstreamSession.end()
  const call = derive(toolCall('t'), { attempt: 2, deadline: { at: 300, reserveMs: 100, askedFor: true } })
  assert.deepEqual(await send(call), { kind: 'failed', error: upstreamSession.ended.reason })
  assert.match(sent().message.text, new RegExp(`"${KEY}":200`))
  assert.match(String(sent().id), /^call-\d+~\d+$/)
  assert.equal(clock.pending, 0)
})
