import assert from 'node:assert/strict'
import { test } from 'node:test'
import { failed } from '../retry/scripted.ts'
import { Stage } from './stage.ts'

/** A bulkhead whose tool usually answers within `ms`. */
async function usual(ms: number, settings: object = {}): Promise<Stage> {
  const stage = new Stage({ concurrent: 1, queue: 100, maxWait: '10m', ...settings })
  stage.send('usual')
  await stage.clock.advance(ms)
  await stage.end('usual')
  stage.started.length = 0
  return stage
}

const facts = (stage: Stage) => {
  const { running, overdue, waiting } = stage.pools()[0]!
  return { running, overdue, waiting }
}

test('a slot that is held for 5 s and five times the usual time counts no more', async () => {
  for (const [usualMs, ms] of [
    [100, 5_000],
    [1_500, 10_000],
  ] as const) {
    const stage = await usual(usualMs)
    for (const id of ['hung', 'next']) stage.send(id)
    await stage.clock.advance(ms - 1)
    assert.deepEqual([stage.started, facts(stage)], [['hung'], { running: 1, overdue: 0, waiting: 1 }])
    await stage.clock.advance(1)
    assert.deepEqual(
      [stage.started, facts(stage)],
      [['hung', 'next'], { running: 1, overdue: 1, waiting: 0 }],
    )
  }
})

test('an overdue call gives nothing back at its end', async () => {
  const stage = await usual(100)
  for (const id of ['hung', 'next']) stage.send(id)
  await stage.clock.advance(5_000)
  stage.send('last')
  await stage.end('hung')
  assert.deepEqual([stage.started, facts(stage)], [['hung', 'next'], { running: 1, overdue: 0, waiting: 1 }])
  await stage.end('next')
  await stage.end('last')
  assert.deepEqual(facts(stage), { running: 0, overdue: 0, waiting: 0 })
  await stage.clock.advance(700_000)
  assert.equal(stage.clock.pending, 0)
})

test('no more slots are overdue than sixteen times those that count', async () => {
  const stage = await usual(10)
  for (let i = 0; i < 30; i++) stage.send(`${i}`)
  await stage.clock.advance(300_000)
  assert.deepEqual(facts(stage), { running: 1, overdue: 16, waiting: 13 })
  await stage.end('0', failed('attempt_timeout'))
  await stage.clock.advance(10_000)
  assert.deepEqual(facts(stage), { running: 1, overdue: 16, waiting: 12 })
})

test('a tool that has always been slow does not hang: its calls keep their slots', async () => {
  const stage = new Stage({ concurrent: 1, queue: 10, maxWait: '10m' })
  for (const id of ['a', 'b', 'c']) stage.send(id)
  // After a long wait of the oldest, the newest goes first.
  for (const started of [['a'], ['a', 'c'], ['a', 'c', 'b']]) {
    await stage.clock.advance(60_000)
    assert.deepEqual([stage.started, facts(stage).overdue], [started, 0])
    await stage.end(started.at(-1)!)
  }
})

test('a tool that has become slow is found out: its calls keep their slots again', async () => {
  const stage = await usual(100)
  for (let i = 0; i < 4; i++) {
    stage.send(`slow ${i}`)
    await stage.clock.advance(20_000)
    await stage.end(`slow ${i}`)
  }
  for (const id of ['slow', 'next']) stage.send(id)
  await stage.clock.advance(20_000)
  assert.deepEqual(facts(stage), { running: 1, overdue: 0, waiting: 1 })
})

test('questions to the agent of an overdue call change nothing', async () => {
  const stage = await usual(100)
  const { record } = stage.send('hung')
  stage.send('next')
  await stage.clock.advance(5_000)
  record.holding?.lend()
  assert.equal(record.holding?.takeBack(), undefined)
  assert.deepEqual(facts(stage), { running: 1, overdue: 1, waiting: 0 })
  await stage.end('hung')
  assert.deepEqual(facts(stage), { running: 1, overdue: 0, waiting: 0 })
})

/** Hanging calls of one agent, beside another agent with one call of the tool. */
function hanging(stage: Stage, count: number): void {
  for (let i = 0; i < count; i++) stage.send(`hung ${i}`, { tenant: 'greedy' })
}

test('a tenant that holds several slots for long gives way to a tenant without slots, even for tools of unknown latency', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 100, maxWait: '10m' })
  hanging(stage, 6)
  stage.send('other', { tenant: 'modest' })
  await stage.clock.advance(4_999)
  assert.equal(stage.started.includes('other'), false)
  await stage.clock.advance(1)
  assert.deepEqual([stage.started.at(-1), facts(stage)], ['other', { running: 4, overdue: 1, waiting: 2 }])
})

test('an agent with a new name gives way to others with new names, though all of these count as one tenant', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 100, maxWait: '10m' })
  const newcomer = (tenant: string) => ({ tenant, countsAs: 'newcomers' })
  const send = (from: number, to: number) => {
    for (let i = from; i < to; i++) stage.send(`hung ${i}`, newcomer('greedy'))
  }
  send(0, 10)
  for (const id of ['one', 'two']) stage.send(id, newcomer(id))
  send(10, 20)
  await stage.clock.advance(4_999)
  assert.equal(stage.started.length, 4)
  await stage.clock.advance(1)
  const [first, second, third] = stage.started.slice(4)
  assert.deepEqual([first, second, third], ['two', 'hung 4', 'one'])
  assert.deepEqual(facts(stage), { running: 4, overdue: 3, waiting: 15 })
  for (const id of stage.started) await stage.end(String(id))
  assert.deepEqual(facts(stage), { running: 0, overdue: 0, waiting: 0 })
  assert.equal(stage.pools()[0]!.tenants, 0)
})

test('agents with new names and one slow call each keep the tool within its limit', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 100, maxWait: '10m' })
  for (let i = 0; i < 12; i++) stage.send(`slow ${i}`, { tenant: `agent ${i}`, countsAs: 'newcomers' })
  await stage.clock.advance(60_000)
  assert.deepEqual([stage.started.length, facts(stage)], [4, { running: 4, overdue: 0, waiting: 8 }])
})

test('a tenant with hanging calls leaves the last eighth of the slots to others', async () => {
  const stage = await usual(100, { concurrent: 16, perTool: 8 })
  hanging(stage, 40)
  await stage.clock.advance(5_000)
  assert.deepEqual(facts(stage), { running: 7, overdue: 8, waiting: 25 })
  for (const id of ['one', 'two']) {
    stage.send(id, { tenant: 'modest' })
    assert.equal(stage.started.at(-1), id)
    await stage.end(id)
  }
  assert.deepEqual(facts(stage), { running: 7, overdue: 8, waiting: 25 })
  for (let i = 0; i < 8; i++) await stage.end(`hung ${i}`)
  assert.deepEqual(facts(stage), { running: 8, overdue: 0, waiting: 24 })
})
