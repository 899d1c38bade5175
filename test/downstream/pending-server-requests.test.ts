import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { PendingServerRequests } from '../../src/downstream/legacy/session.ts'

const read = (text: string): Message => ({ text, value: JSON.parse(text) as Message['value'] })

/** An agent that receives questions, and the answers sent back to the servers. */
function setUp() {
  const pending = new PendingServerRequests((_, message) => message)
  const answers: string[] = []
  let asks = 0
  return {
    pending,
    answers,
    /** Asks under the server's own id, given as JSON text; returns the question the agent sees. */
    ask(server: string, id: string, params = '{}', call?: object) {
      const name = `${server}#${++asks}`
      const request = read(
        `{"jsonrpc":"2.0","x":1.0,"id":${id},"method":"sampling/createMessage","params":${params}}`,
      )
      const answer = (text: string) => Promise.resolve(void answers.push(`${name} ${text}`))
      const text = pending.ask(server, request, { answer }, call)
      return { text, id: String(read(text).value.id) }
    },
  }
}

test('the gateway tells servers with equal ids apart, and routes answers back', async () => {
  const { pending, answers, ask } = setUp()
  const [first, second] = [ask('a', '1'), ask('b', '1')]
  assert.notEqual(first.id, second.id)
  for (const { id } of [second, first]) {
    assert.equal(await pending.answer(read(`{"jsonrpc":"2.0","id":"${id}","result":{"n":1.0}}`)), true)
  }
  assert.deepEqual(answers, [
    `b#2 {"jsonrpc":"2.0","id":"${second.id}","result":{"n":1.0}}`,
    `a#1 {"jsonrpc":"2.0","id":"${first.id}","result":{"n":1.0}}`,
  ])
})

test('a question keeps all its bytes but the id', () => {
  const { text, id } = setUp().ask('a', '12345678901234567890', '{ "n":1.0 }')
  assert.equal(
    text,
    `{"jsonrpc":"2.0","x":1.0,"id":"${id}","method":"sampling/createMessage","params":{ "n":1.0 }}`,
  )
})

test('an answer counts once, and an unrequested answer never', async () => {
  const { pending, answers, ask } = setUp()
  const { id } = ask('a', '1')
  const answer = read(`{"jsonrpc":"2.0","id":"${id}","result":{}}`)
  assert.equal(await pending.answer(answer), true)
  assert.equal(await pending.answer(answer), false)
  for (const stray of ['1', '"1"', '"breakwater-99"', 'null', '"__proto__"']) {
    assert.equal(await pending.answer(read(`{"jsonrpc":"2.0","id":${stray},"result":{}}`)), false, stray)
  }
  assert.equal(answers.length, 1)
})

test('an error counts as an answer', async () => {
  const { pending, answers, ask } = setUp()
  const { id } = ask('a', '"q"')
  await pending.answer(read(`{"jsonrpc":"2.0","id":"${id}","error":{"code":-1,"message":"no"}}`))
  assert.equal(answers.length, 1)
})

test('a server takes back its own question, under the id that the agent knows', async () => {
  const { pending, answers, ask } = setUp()
  const [first, second] = [ask('a', '7'), ask('b', '7')]
  const cancel = (id: string) =>
    read(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${id},"reason":"x"}}`)
  assert.equal(pending.withdraw('b', cancel('7')), cancel(`"${second.id}"`).text)
  assert.equal(pending.withdraw('b', cancel('7')), undefined)
  assert.equal(pending.withdraw('c', cancel('7')), undefined)
  assert.equal(pending.withdraw('a', cancel('"7"')), undefined)
  assert.equal(pending.withdraw('a', cancel('null')), undefined)
  assert.equal(await pending.answer(read(`{"jsonrpc":"2.0","id":"${second.id}","result":{}}`)), false)
  assert.equal(await pending.answer(read(`{"jsonrpc":"2.0","id":"${first.id}","result":{}}`)), true)
  assert.equal(answers.length, 1)
})

test('progress on a question goes back under the token that its server chose', () => {
  const { pending, ask } = setUp()
  for (const token of ['0', '"mine"']) {
    const { text, id } = ask('a', '1', `{"_meta":{"progressToken":${token},"x":1.0}}`)
    assert.ok(text.includes(`"_meta":{"progressToken":"${id}","x":1.0}`))
    const told = (progressToken: string) =>
      read(
        `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${progressToken},"progress":1.0}}`,
      )
    assert.deepEqual(pending.progress(told(`"${id}"`)), { server: 'a', text: told(token).text })
  }
})

test("progress without a server's token goes nowhere", () => {
  const { pending, ask } = setUp()
  const { id } = ask('a', '1')
  const told = (token: string) =>
    read(
      `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1}}`,
    )
  assert.equal(pending.progress(told('"other"')), undefined)
  assert.equal(pending.progress(told(`"${id}"`)), undefined)
})

test('an agent that answers nothing is asked no more after a thousand questions', async () => {
  const { pending, ask } = setUp()
  const questions = Array.from({ length: 1_000 }, (_, n) => ask('a', `${n}`))
  assert.equal(pending.isFull, true)
  await pending.answer(read(`{"jsonrpc":"2.0","id":"${questions[5]?.id}","result":{}}`))
  assert.equal(pending.isFull, false)
})

test('questions of a call end with the call, and no others', async () => {
  const { pending, answers, ask } = setUp()
  const [call, other] = [{}, {}]
  const ids = [
    ask('a', '1', '{}', call),
    ask('a', '2', '{}', call),
    ask('a', '3', '{}', other),
    ask('a', '4'),
  ]
  const answer = ({ id }: { id: string }) =>
    pending.answer(read(`{"jsonrpc":"2.0","id":"${id}","result":{}}`))
  assert.equal(await answer(ids[0]!), true)
  pending.end(call)
  assert.equal(pending.size, 2)
  assert.equal(await answer(ids[1]!), false)
  assert.deepEqual([await answer(ids[2]!), await answer(ids[3]!)], [true, true])
  assert.equal(answers.length, 3)
  pending.end(other)
  assert.equal(pending.size, 0)
})

test('an agent that answers nothing can be asked again, call after call', () => {
  const { pending, ask } = setUp()
  for (let round = 0; round < 5; round++) {
    const call = {}
    assert.equal(pending.isFull, false)
    for (let n = 0; n < 1_000; n++) ask('a', `${n}`, '{}', call)
    assert.equal(pending.isFull, true)
    pending.end(call)
  }
})
