import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AnswerShape, ShapedAnswer } from '../../src/mesh/wire-shape.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { AnswerShaper } from '../../src/wire/shaped-answers.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answerTo = (id: unknown, more = '') => `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{${more}}}`

function setUp() {
  const clock = new ManualClock()
  const released = new Cancellation()
  const read: string[] = []
  const shaper = new AnswerShaper({
    pass: (text) => void read.push(text),
    instead: ({ texts }) => void read.push(...texts),
  })
  const shape = (take: AnswerShape['take']): AnswerShape => ({ clock, released, take })
  return { clock, released, read, shaper, shape }
}

const twice = (text: string): ShapedAnswer => ({ texts: [text, text] })

test('a fault shapes only the answer to its request, and only once', () => {
  const { read, shaper, shape } = setUp()
  shaper.add(2, shape(twice))
  const request = '{"jsonrpc":"2.0","id":2,"method":"ping"}'
  const others = [answerTo(1), answerTo('2'), request, 'no JSON', `[${answerTo(2)}]`]
  for (const text of others) void shaper.pass(text)
  assert.deepEqual(read, others)
  void shaper.pass(answerTo(2))
  void shaper.pass(answerTo(2))
  assert.deepEqual(read.slice(others.length), Array(3).fill(answerTo(2)))
})

test('the shaper recognises a large answer by its ends', () => {
  const { read, shaper, shape } = setUp()
  shaper.add(
    2,
    shape(() => ({ texts: ['shaped'] })),
  )
  void shaper.pass(answerTo(2, `"a":"${'x'.repeat(100_000)}"`))
  assert.deepEqual(read, ['shaped'])
})

test('an answer to a call that is over passes as it came, and so does one when the fault has ended', () => {
  const { read, released, shaper, shape } = setUp()
  shaper.add(1, shape(twice))()
  shaper.add(2, shape(twice))
  released.abort('ended')
  void shaper.pass(answerTo(1))
  void shaper.pass(answerTo(2))
  assert.deepEqual(read, [answerTo(1), answerTo(2)])
})

test('later messages overtake a held answer, which comes when its time is over', async () => {
  const { clock, read, shaper, shape } = setUp()
  let isOver = false
  const holds = (over: Promise<void>) => void over.then(() => (isOver = true))
  shaper.add(
    1,
    shape((text) => ({ texts: [text], holdMs: 100, holds })),
  )
  assert.equal(shaper.pass(answerTo(1)), undefined, 'the next answer does not wait')
  void shaper.pass(answerTo(2))
  await clock.advance(99)
  assert.deepEqual([read, isOver], [[answerTo(2)], false])
  await clock.advance(1)
  assert.deepEqual([read, isOver], [[answerTo(2), answerTo(1)], true])
})

test('the end of a fault releases held answers at once and in order, and leaves no timer', () => {
  const { clock, read, released, shaper, shape } = setUp()
  for (const id of [1, 2, 3]) {
    shaper.add(
      id,
      shape((text) => ({ texts: [text], holdMs: 1_000 - id })),
    )
    void shaper.pass(answerTo(id))
  }
  released.abort('killed')
  assert.deepEqual(
    read,
    [1, 2, 3].map((id) => answerTo(id)),
  )
  assert.equal(clock.pending, 0)
})

test('the end of the pipe drops held answers, and nobody waits for them', async () => {
  const { clock, read, shaper, shape } = setUp()
  let settled: Promise<void> | undefined
  shaper.add(
    1,
    shape((text) => ({ texts: [text], holdMs: 1_000, holds: (over) => void (settled = over) })),
  )
  void shaper.pass(answerTo(1))
  shaper.end()
  await settled
  assert.deepEqual([read, clock.pending], [[], 0])
})

test('a fault holds no more than its buffer: further answers come at once, and do not count as held', () => {
  const { read, shaper, shape } = setUp()
  let held = 0
  for (let id = 1; id <= 1_001; id++) {
    shaper.add(
      id,
      shape((text) => ({ texts: [text], holdMs: 1_000, holds: () => void held++ })),
    )
    void shaper.pass(answerTo(id))
  }
  assert.deepEqual([held, read], [1_000, [answerTo(1_001)]])
  const large = setUp()
  const padding = `"a":"${'x'.repeat(6 * 1024 ** 2)}"`
  for (const id of [1, 2, 3]) {
    large.shaper.add(
      id,
      large.shape((text) => ({ texts: [text], holdMs: 1_000 })),
    )
    void large.shaper.pass(answerTo(id, padding))
  }
  assert.equal(large.read.length, 1)
})
