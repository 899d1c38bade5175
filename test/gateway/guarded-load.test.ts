import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent, Answer } from '../../src/load/twins.ts'
import { firstAnswers } from '../../src/gateway/guarded/load.ts'

const asked = { name: 'a__t', arguments: {}, meta: {} }

/** An agent with answers from the test. */
function held(): Agent & { readonly answer: (answer: Answer) => void } {
  let answer: (answer: Answer) => void = () => undefined
  const answered = new Promise<Answer>((resolve) => (answer = resolve))
  return { call: () => answered, answer: (one) => answer(one) }
}

test('a load is ready when all agents that have begun to call have had an answer, told once', async () => {
  let ready = 0
  const heard = firstAnswers(() => ready++)
  const [one, other] = [held(), held()]
  const calls = [heard('1', one).call(asked), heard('2', other).call(asked)]
  one.answer({ ok: true, result: {} })
  await calls[0]
  assert.equal(ready, 0, 'the other agent still opens its session')
  // A second call of an agent with a session does not wait.
  await heard('1', one).call(asked)
  assert.equal(ready, 0)
  other.answer({ ok: false, why: 'timeout' })
  await calls[1]
  assert.equal(ready, 1)
  const late = held()
  assert.equal(heard('3', late), late)
})
