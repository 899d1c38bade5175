import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Stage } from './stage.ts'

const deadline = (at: number) => ({ at, reserveMs: undefined })

test('a tenant that is alone may use every slot and every place', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 2 })
  for (let i = 0; i < 7; i++) stage.send(`${i}`, { tenant: 'busy' })
  assert.equal(stage.started.length, 4)
  await stage.rejected('6')
  for (let i = 0; i < 6; i++) await stage.end(`${i}`)
  assert.equal(stage.started.length, 6)
  assert.deepEqual([stage.pools()[0]?.running, stage.pools()[0]?.tenants], [0, 0])
})

test('a tenant that holds more than its share gives way, even with earlier deadlines', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 8 })
  for (let i = 0; i < 8; i++) stage.send(`busy ${i}`, { tenant: 'busy', deadline: deadline(100 + i) })
  stage.send('other 0', { tenant: 'other', deadline: deadline(900) })
  stage.send('other 1', { tenant: 'other' })
  await stage.end('busy 0')
  await stage.end('busy 1')
  assert.deepEqual(stage.started.slice(4), ['other 0', 'other 1'])
  await stage.end('busy 2')
  assert.equal(stage.started.at(-1), 'busy 4')
})

test('with more tenants than shares, each of them still gets slots', async () => {
  const stage = new Stage({ concurrent: 3, perTool: 3, queue: 9 })
  for (let i = 0; i < 5; i++) stage.send(`a ${i}`, { tenant: 'a', deadline: deadline(10 + i) })
  for (let i = 0; i < 3; i++) stage.send(`b ${i}`, { tenant: 'b', deadline: deadline(20 + i) })
  stage.send('c', { tenant: 'c' })
  await stage.end('a 0')
  await stage.end('a 1')
  assert.deepEqual(stage.started.slice(3), ['b 0', 'c'])
})

test('with a single slot, tenants take turns', async () => {
  const stage = new Stage({ concurrent: 1, queue: 9 })
  for (let i = 0; i < 4; i++) stage.send(`a ${i}`, { tenant: 'a', deadline: deadline(10) })
  for (let i = 0; i < 2; i++) stage.send(`b ${i}`, { tenant: 'b' })
  for (const id of ['a 0', 'b 0', 'a 1', 'b 1', 'a 2', 'a 3']) await stage.end(id)
  assert.deepEqual(stage.started, ['a 0', 'b 0', 'a 1', 'b 1', 'a 2', 'a 3'])
})

test('a tenant that fills the queue makes room for others, its latest calls first, until they wait alike', async () => {
  const stage = new Stage({ concurrent: 1, queue: 4 })
  stage.send('running', { tenant: 'busy' })
  for (let i = 0; i < 4; i++) stage.send(`busy ${i}`, { tenant: 'busy', deadline: deadline(100 + i) })
  for (let i = 0; i < 3; i++) stage.send(`other ${i}`, { tenant: 'other' })
  const { message } = await stage.rejected('busy 3')
  assert.equal(message, 'bulkhead full for tool of search (1 of 1 running, 4 of 4 waiting)')
  await stage.rejected('busy 2')
  await stage.rejected('other 2')
  const [pool] = stage.pools()
  assert.deepEqual([pool?.waiting, pool?.tenants], [4, 2])
})

test('room is made by the tenant with the most calls waiting, over all its tools', async () => {
  const stage = new Stage({ concurrent: 2, perTool: 2, queue: 4 })
  for (let i = 0; i < 2; i++) stage.send(`running ${i}`, { tenant: 'busy' })
  for (const tool of ['x', 'y', 'z']) stage.send(`busy ${tool}`, { tenant: 'busy', tool })
  stage.send('b 0', { tenant: 'b' })
  stage.send('c 0', { tenant: 'c' })
  await new Promise(setImmediate)
  const displaced = [...stage.outcomes.keys()]
  assert.equal(displaced.length, 1)
  assert.match(String(displaced[0]), /^busy/)
})

test('two tenants with many calls never starve a third one with one call at a time', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 4, queue: 200 })
  for (let i = 0; i < 60; i++)
    for (const tenant of ['a', 'b']) stage.send(`${tenant} ${i}`, { tenant, deadline: deadline(100 + i) })
  for (let i = 0; i < 20; i++) {
    stage.send(`single ${i}`, { tenant: 'single' })
    const isRunning = (id: string | number) => !stage.outcomes.has(id)
    const [oldest] = stage.started.filter(isRunning)
    await stage.end(String(oldest))
    assert.equal(stage.started.at(-1), `single ${i}`)
    await stage.end(`single ${i}`)
  }
})

test('the tools of one tenant take turns', async () => {
  const stage = new Stage({ concurrent: 1, queue: 20 })
  stage.send('running')
  for (const tool of ['x', 'y', 'z']) for (let i = 0; i < 2; i++) stage.send(`${tool}${i}`, { tool })
  const order = ['running', 'x0', 'y0', 'z0', 'x1', 'y1', 'z1']
  for (const id of order) await stage.end(id)
  assert.deepEqual(stage.started, order)
})

test('a tenant whose oldest call is late makes room for a new one of its own', async () => {
  const stage = new Stage({ concurrent: 1, queue: 2 })
  stage.send('running')
  for (const id of ['old', 'middle', 'refused']) stage.send(id)
  await stage.rejected('refused')
  await stage.clock.advance(300)
  stage.send('new')
  await stage.rejected('old')
  await stage.end('running')
  assert.deepEqual(stage.started, ['running', 'new'])
})

test('among agents that count as one tenant, no stream of new calls keeps an old one waiting for long', async () => {
  const stage = new Stage({ concurrent: 1, queue: 40 })
  const send = (id: string) => stage.send(id, { tenant: `of ${id}`, countsAs: 'newcomers' })
  stage.send('running', { tenant: 'settled' })
  for (let i = 0; i < 4; i++) send(`old ${i}`)
  send('single')
  await stage.clock.advance(300)
  for (let turn = 0; turn < 10; turn++) {
    send(`new ${turn}`)
    await stage.end(String(stage.started.at(-1)))
  }
  const old = ['old 0', 'old 1', 'old 2', 'old 3', 'single']
  assert.deepEqual(
    stage.started.slice(1),
    old.flatMap((id, turn) => [`new ${2 * turn}`, id]),
  )
})
