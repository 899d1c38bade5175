import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bulkhead } from '../../../src/policies/bulkhead.ts'
import { newCall } from '../../support/caller.ts'
import { seeded } from '../../support/random.ts'
import { testScope } from '../../support/policy-context.ts'
import { Stage } from './stage.ts'

test('a tool that hangs takes half of the slots and of the queue, and the others go on', async () => {
  const stage = new Stage({ concurrent: 8, queue: 8 })
  for (let i = 0; i < 9; i++) stage.send(`hung ${i}`, { tool: 'hung' })
  const { message } = await stage.rejected('hung 8')
  assert.equal(message, 'bulkhead full for hung of search (4 of 4 running, 4 of 4 waiting)')
  for (let i = 0; i < 4; i++) stage.send(`quick ${i}`, { tool: 'quick' })
  assert.deepEqual(stage.started.slice(4), ['quick 0', 'quick 1'])
  await stage.end('quick 0')
  await stage.end('quick 1')
  assert.deepEqual(stage.started.slice(6), ['quick 2', 'quick 3'])
})

test('several hanging tools each leave slots and places for the next tool', async () => {
  const stage = new Stage({ concurrent: 16, queue: 16 })
  for (const tool of ['a', 'b', 'c']) for (let i = 0; i < 40; i++) stage.send(`${tool} ${i}`, { tool })
  const runs = () => stage.pools()[0]?.tools.map(({ tool, running, waiting }) => [tool, running, waiting])
  assert.deepEqual(runs(), [
    ['a', 8, 8],
    ['b', 4, 4],
    ['c', 2, 2],
  ])
  for (let i = 0; i < 10; i++) {
    stage.send(`quick ${i}`, { tool: 'quick' })
    await stage.end(`quick ${i}`)
  }
  assert.equal(stage.started.filter((id) => String(id).startsWith('quick')).length, 10)
  assert.deepEqual(runs(), [
    ['a', 8, 8],
    ['b', 4, 4],
    ['c', 2, 2],
  ])
})

test('slots that one tool gives back go to calls that wait for another tool', async () => {
  const stage = new Stage({ concurrent: 8, queue: 8 })
  for (let i = 0; i < 6; i++) stage.send(`a ${i}`, { tool: 'a' })
  for (let i = 0; i < 3; i++) stage.send(`b ${i}`, { tool: 'b' })
  assert.deepEqual(stage.started, ['a 0', 'a 1', 'a 2', 'a 3', 'b 0', 'b 1'])
  await stage.end('b 0')
  await stage.end('b 1')
  assert.deepEqual(stage.started.slice(6), ['b 2'])
  for (let i = 0; i < 4; i++) await stage.end(`a ${i}`)
  assert.deepEqual(stage.started.slice(7), ['a 4', 'a 5'])
  assert.equal(stage.pools()[0]?.waiting, 0)
})

test('no slot stays free while somebody waits who may use it, and no tool gets more than is free', async () => {
  const random = seeded(7)
  const [concurrent, tools] = [9, ['a', 'b', 'c', 'd', 'e']]
  const stage = new Stage({ concurrent, queue: 12 })
  const running = new Map<string, string>()
  let sent = 0
  for (let step = 0; step < 3_000; step++) {
    const ids = [...running.keys()]
    const ended = ids[Math.floor(random() * ids.length)]
    if (random() < 0.5 && ended !== undefined) {
      running.delete(ended)
      await stage.end(ended)
    } else {
      const tool = tools[Math.floor(random() * random() * tools.length)] as string
      stage.send(`${tool} ${sent++}`, { tool })
    }
    for (const id of stage.started.splice(0)) running.set(String(id), String(id).split(' ')[0] as string)
    const [pool] = stage.pools()
    const free = concurrent - running.size
    assert.equal(pool?.running, running.size)
    for (const { tool, running: own, waiting } of pool.tools)
      assert.ok(
        waiting === 0 || free === 0 || own >= free,
        `${tool}: ${own} run, ${waiting} wait, ${free} are free`,
      )
  }
})

test('a call that waits for its tool holds no slot of the server', async () => {
  const stage = new Stage({ concurrent: 2, perTool: 1, queue: 4 })
  stage.send('a1', { tool: 'a' })
  stage.send('a2', { tool: 'a' })
  stage.send('b1', { tool: 'b' })
  assert.deepEqual(stage.started, ['a1', 'b1'])
  await stage.end('b1')
  stage.send('c1', { tool: 'c' })
  await stage.end('a1')
  assert.deepEqual(stage.started, ['a1', 'b1', 'c1', 'a2'])
})

test('requests that are for no listed tool share a limit', async () => {
  const stage = new Stage({ concurrent: 4, perTool: 1, queue: 0 })
  stage.send('a')
  const { context } = stage
  assert.deepEqual(stage.pools()[0]?.tools, [{ tool: 'tool', limit: 1, running: 1, waiting: 0 }])
  const config = bulkhead.schema.parse({ concurrent: 4, perTool: 1, queue: 0 })
  const scope = testScope({ server: 'search', tool: undefined })
  const others = () => bulkhead.build(config, context, scope)(() => new Promise(() => {}))
  void others()(newCall({ method: 'resources/read' }))
  const outcome = await others()(newCall({ method: 'prompts/get' }))
  assert.equal(
    outcome.kind === 'rejected' && outcome.error.message,
    'bulkhead full for requests to search that are for no listed tool (1 of 1 running, 0 of 0 waiting)',
  )
})

test('a separate limit of one tool leaves the tool in the pool of the server', async () => {
  const stage = new Stage({ concurrent: 2, queue: 0 })
  stage.send('a', { tool: 'a', settings: { concurrent: 2, perTool: 2, queue: 0 } })
  stage.send('b', { tool: 'b' })
  stage.send('c', { tool: 'c' })
  await stage.rejected('c')
  assert.equal(stage.pools().length, 1)
})

test('a reload with other numbers begins anew, and calls in flight give back what they took', async () => {
  const stage = new Stage({ concurrent: 1, queue: 1 })
  stage.send('a')
  stage.send('b')
  const settings = { concurrent: 2, perTool: 2, queue: 0 }
  stage.send('c', { settings })
  stage.send('d', { settings })
  stage.send('e', { settings })
  await stage.rejected('e')
  await stage.end('a')
  assert.deepEqual(stage.started, ['a', 'c', 'd', 'b'])
  await stage.end('b')
  const [old, renewed] = stage.pools()
  assert.deepEqual([old?.running, old?.waiting, renewed?.running], [0, 0, 2])
})

test('a reload with the same numbers finds the slots taken', async () => {
  const stage = new Stage({ concurrent: 1, queue: 0 })
  stage.send('a', { settings: { concurrent: 1, queue: 0 } })
  stage.send('b', { settings: { concurrent: 1, queue: 0, maxWait: '30s' } })
  await stage.rejected('b')
})

test('lists have slots apart from other requests that are for no tool', async () => {
  const stage = new Stage({ concurrent: 8, queue: 0 })
  const config = bulkhead.schema.parse({ concurrent: 8, queue: 0 })
  const layer = bulkhead.build(config, stage.context, testScope({ server: 'search', tool: undefined }))
  const begun: string[] = []
  const service = layer(({ method }) => {
    begun.push(method)
    return new Promise(() => undefined)
  })
  for (let i = 0; i < 6; i++) void service(newCall({ method: 'resources/read' }))
  void service(newCall({ method: 'tools/list' }))
  assert.deepEqual(begun, [...Array<string>(4).fill('resources/read'), 'tools/list'])
  const [pool] = stage.pools()
  assert.deepEqual(pool?.tools, [
    { tool: undefined, limit: 4, running: 4, waiting: 0 },
    { tool: undefined, requests: 'lists', limit: 2, running: 1, waiting: 0 },
  ])
})
