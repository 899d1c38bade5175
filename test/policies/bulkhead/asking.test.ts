import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { abandon, pauseDeadline } from '../../../src/mesh/pause-deadline.ts'
import type { Call } from '../../../src/mesh/call.ts'
import { Limiter } from '../../../src/policies/adaptive-concurrency.ts'
import { toolCall } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { answer, Stage } from './stage.ts'

/** Makes the server of a call ask. Returns functions to answer and to see whether the answer reached the server. */
function ask(stage: { readonly clock: ManualClock }, { record }: Call) {
  const question = { arrived: false, reply: () => {}, withdraw: () => {} }
  const { answer, withdrawn } = pauseDeadline(record, stage.clock, () => {
    question.arrived = true
    return Promise.resolve()
  })
  question.reply = () => void answer('{}')
  question.withdraw = withdrawn
  return question
}

test('a call whose agent is asked leaves its slot to others, and goes on at once when one is free', async () => {
  const stage = new Stage({ concurrent: 1 })
  const question = ask(stage, stage.send('asking'))
  stage.send('bystander')
  assert.deepEqual(stage.started, ['asking', 'bystander'])
  await stage.end('bystander')
  question.reply()
  assert.equal(question.arrived, true)
  stage.send('next')
  assert.deepEqual(stage.started, ['asking', 'bystander'])
  await stage.end('asking')
  assert.deepEqual(stage.started, ['asking', 'bystander', 'next'])
})

test('an abandoned call gives its slot to others, and takes none at its end', async () => {
  const stage = new Stage({ concurrent: 1, queue: 2 })
  const { record } = stage.send('abandoned')
  for (const id of ['a', 'b']) stage.send(id)
  abandon(record)
  abandon(record)
  assert.deepEqual(stage.started, ['abandoned', 'a'])
  await stage.end('abandoned')
  assert.deepEqual(stage.started, ['abandoned', 'a'])
  await stage.end('a')
  assert.deepEqual(stage.started, ['abandoned', 'a', 'b'])
})

test('unanswered questions of a greedy client leave a tool free for a bystander', async () => {
  const stage = new Stage({ concurrent: 4, queue: 0 })
  for (let n = 0; n < 50; n++) ask(stage, stage.send(`greedy ${n}`))
  stage.send('bystander', { tenant: 'bystander' })
  await stage.end('bystander')
  assert.equal(stage.outcomes.get('bystander'), answer)
})

test('an answer waits for a slot, before calls that have not begun', async () => {
  const stage = new Stage({ concurrent: 1 })
  const question = ask(stage, stage.send('asking'))
  stage.send('running')
  stage.send('waiting')
  question.reply()
  await setImmediate()
  assert.equal(question.arrived, false)
  await stage.end('running')
  assert.equal(question.arrived, true)
  assert.deepEqual(stage.started, ['asking', 'running'])
  await stage.end('asking')
  assert.deepEqual(stage.started, ['asking', 'running', 'waiting'])
})

test('a call whose question is withdrawn has its slot again', async () => {
  const stage = new Stage({ concurrent: 1 })
  const call = stage.send('asking')
  const question = ask(stage, call)
  question.withdraw()
  question.withdraw()
  stage.send('bystander')
  assert.deepEqual(stage.started, ['asking'])
  assert.equal(call.record.asking, 0)
  assert.equal(question.arrived, false)
  await stage.end('asking')
  assert.deepEqual(stage.started, ['asking', 'bystander'])
})

test('a call that ends while its agent is asked, or its answer waits, takes no slot with it', async () => {
  const stage = new Stage({ concurrent: 1 })
  ask(stage, stage.send('asked'))
  await stage.end('asked')
  const late = ask(stage, stage.send('late'))
  stage.send('running')
  late.reply()
  await stage.end('late')
  await stage.end('running')
  stage.send('first')
  stage.send('second')
  assert.deepEqual(stage.started.slice(-1), ['first'])
  await stage.end('first')
  assert.deepEqual(stage.started.slice(-1), ['second'])
})

test('a call that is asked several things at once holds a slot again when all are answered', async () => {
  const stage = new Stage({ concurrent: 1 })
  const call = stage.send('asking')
  const questions = [ask(stage, call), ask(stage, call)] as const
  questions[0].reply()
  questions[0].reply()
  stage.send('bystander')
  assert.deepEqual(stage.started, ['asking', 'bystander'])
  questions[1].reply()
  // Asked again before the answer went on: the answer is no longer held back.
  ask(stage, call)
  await setImmediate()
  assert.deepEqual([questions[0].arrived, questions[1].arrived], [true, true])
})

test('a call whose agent is asked is no load for the limit that adapts', async () => {
  const clock = new ManualClock()
  const settings = { initial: 1, min: 1, max: 1, smoothing: 0.2, tolerance: 1.5, window: 600 }
  const limiter = new Limiter('s', settings, clock)
  const call = toolCall('t')
  let end = () => {}
  const running = limiter.run(call, () => new Promise((resolve) => (end = () => resolve(answer))))
  const question = ask({ clock }, call)
  assert.equal(limiter.snapshot().inFlight, 0)
  const other = await limiter.run(toolCall('t'), () => Promise.resolve(answer))
  assert.equal(other, answer)
  question.reply()
  assert.equal(limiter.snapshot().inFlight, 1)
  end()
  await running
  assert.equal(limiter.snapshot().inFlight, 0)
})
