import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bulkhead } from '../../../src/policies/bulkhead.ts'
import { newCall } from '../../support/caller.ts'
import { testScope } from '../../support/kit.ts'
import { Stage } from './stage.ts'

test('a tool that hangs takes half of the slots and of the queue, and the others go on', async () => {
  const stage = new Stage({ concurrent: 4, queue: 4 })
  for (let i = 0; i < 5; i++) stage.send(`hung ${i}`, { tool: 'hung' })
  const { message } = await stage.rejected('hung 4')
  assert.equal(message, 'bulkhead full for hung of search (2 of 2 running, 2 of 2 waiting)')
  for (let i = 0; i < 4; i++) stage.send(`quick ${i}`, { tool: 'quick' })
  assert.deepEqual(stage.started, ['hung 0', 'hung 1', 'quick 0', 'quick 1'])
  await stage.end('quick 0')
  await stage.end('quick 1')
  assert.deepEqual(stage.started.slice(4), ['quick 2', 'quick 3'])
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
  const { kit } = stage
  assert.deepEqual(stage.pools()[0]?.tools, [{ tool: 'tool', limit: 1, running: 1, waiting: 0 }])
  const config = bulkhead.schema.parse({ concurrent: 4, perTool: 1, queue: 0 })
  const scope = testScope({ server: 'search', tool: undefined })
  const others = () => bulkhead.build(config, kit, scope)(() => new Promise(() => {}))
  void others()(newCall({ method: 'tools/list' }))
  const outcome = await others()(newCall({ method: 'prompts/list' }))
  assert.equal(
    outcome.kind === 'rejected' && outcome.error.message,
    'bulkhead full for requests to search that are for no listed tool (1 of 1 running, 0 of 0 waiting)',
  )
})

test('a limit of its own for one tool leaves it in the pool of the server', async () => {
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
  stage.send('b', { settings: { concurrent: 1, queue: 0, maxWait: '5s' } })
  await stage.rejected('b')
})
