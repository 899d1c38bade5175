import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf, resultIn } from '../../../src/chaos/fault.ts'
import { registryFaults } from '../../../src/chaos/faults/registry.ts'
import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { type Ask, fetchList } from '../../../src/registry/catalog.ts'
import { newCall, toolCall } from '../../support/caller.ts'
import { answering, faultLayer, testInjection, type TestInjectionParts } from '../../support/injection.ts'

interface Tool {
  name: string
  [more: string]: unknown
}

const tool = (name: string, more: object = {}): Tool => ({
  name,
  inputSchema: { type: 'object', properties: { city: { type: 'string' }, days: {} }, required: ['city'] },
  ...more,
})

/** A fault that fires repeatedly, with one memory. */
function firing(type: keyof typeof registryFaults, config: object, parts: TestInjectionParts = { draws: 0 }) {
  const injection = testInjection(parts)
  const layer = faultLayer(registryFaults[type], config, injection)
  const asked: Call[] = []
  const through = (server: Service) =>
    layer((call) => {
      asked.push(call)
      return server(call)
    })
  const list = (
    result: object,
    params: Record<string, unknown> = {},
  ): Promise<Record<string, unknown> | undefined> =>
    through(answering(result))(newCall({ method: 'tools/list', params })).then(resultIn)
  const call = (name: string) => through(answering({ content: [] }))(toolCall(name))
  const names = (result: Record<string, unknown> | undefined) =>
    (result?.tools as Tool[]).map(({ name }) => name)
  return { injection, asked, through, list, call, names }
}

const errorOf = (outcome: Outcome) =>
  outcome.kind === 'answered' ? (outcome.result.value.error as { code: number; message: string }) : undefined

test('a missing tool is gone from the list', async () => {
  const { injection, list, names } = firing('registry.tool_missing', { tools: ['get_*'] })
  assert.deepEqual(names(await list({ tools: [tool('get_a'), tool('put_a'), tool('get_b')] })), ['put_a'])
  assert.deepEqual(injection.notes, [{ gone: ['get_a', 'get_b'] }])
  await list({ tools: [tool('put_a')] })
  assert.deepEqual(injection.inapplicable, ['the page lists none of the tools'])
})

test('a call of a missing tool fails, and the server does not get it', async () => {
  const { call, asked, injection } = firing('registry.tool_missing', { tools: ['get_*'] })
  assert.deepEqual(errorOf(await call('get_a')), { code: -32602, message: 'Unknown tool: get_a' })
  assert.equal(asked.length, 0)
  assert.equal(errorOf(await call('put_a')), undefined)
  assert.equal(asked.length, 1)
  assert.equal(injection.inapplicable.length, 1)
})

test('a ghost is the last tool of the list, and a call of the ghost fails', async () => {
  const { list, names, call, asked } = firing('registry.ghost_tool', { tools: ['find_user', 'a'] })
  const result = await list({ tools: [tool('a')] })
  assert.deepEqual(names(result), ['a', 'find_user'])
  const [, ghost] = result?.tools as Tool[]
  assert.equal((ghost?.inputSchema as { type: string }).type, 'object')
  assert.equal(errorOf(await call('find_user'))?.code, -32602)
  assert.equal(asked.length, 1)
})

test('a ghost stands only on the last page', async () => {
  const { list, names, injection } = firing('registry.ghost_tool', { tools: ['ghost'] })
  assert.deepEqual(names(await list({ tools: [tool('a')], nextCursor: '2' })), ['a'])
  assert.deepEqual(injection.inapplicable, ['not the last page of the list'])
})

test('a stale list hides changes, page by page, up to its maximum age', async () => {
  const { injection, list, names } = firing('registry.stale_list', { age: '1h' })
  await list({ tools: [tool('a')] })
  await list({ tools: [tool('z')] }, { cursor: '2' })
  assert.equal(injection.inapplicable.length, 2)
  await injection.clock.advance(3_600_000)
  assert.deepEqual(names(await list({ tools: [tool('a'), tool('b')] })), ['a'])
  assert.deepEqual(names(await list({ tools: [tool('y')] }, { cursor: '2' })), ['z'])
  assert.deepEqual(injection.notes[0], { ageMs: 3_600_000 })
  await injection.clock.advance(1)
  assert.deepEqual(names(await list({ tools: [tool('a'), tool('b')] })), ['a', 'b'])
})

test('a stale schema is the schema that was really seen before', async () => {
  const { injection, list } = firing('registry.stale_schema', {})
  const old = tool('a', { inputSchema: { type: 'object', properties: { town: {} } }, description: 'old' })
  await list({ tools: [old] })
  const result = await list({ tools: [tool('a', { description: 'new', outputSchema: { type: 'object' } })] })
  assert.deepEqual(result?.tools, [{ name: 'a', description: 'new', inputSchema: old.inputSchema }])
  assert.deepEqual(injection.notes.at(-1), { tool: 'a', how: 'inputSchema,outputSchema of an earlier list' })
})

test('without an earlier schema, a required member gets another name', async () => {
  const { injection, list } = firing('registry.stale_schema', { tools: ['b'] })
  const result = await list({ tools: [tool('a'), tool('b')] })
  assert.deepEqual(result?.tools, [
    tool('a'),
    tool('b', {
      inputSchema: {
        type: 'object',
        properties: { city_value: { type: 'string' }, days: {} },
        required: ['city_value'],
      },
    }),
  ])
  assert.deepEqual(injection.notes, [{ tool: 'b', how: 'inputSchema: city was city_value' }])
  await list({ tools: [{ name: 'b', inputSchema: { type: 'object' } }] }, { cursor: '2' })
  assert.deepEqual(injection.inapplicable, ['no tool has a schema with members'])
})

test('a slow list comes late, at once when the fault is released, and never when the call is aborted', async () => {
  const { injection, asked, list } = firing('registry.slow_list', { delay: '5s' })
  const late = list({ tools: [] })
  await injection.clock.advance(4_999)
  assert.equal(asked.length, 0)
  await injection.clock.advance(1)
  assert.deepEqual(await late, { tools: [] })
  const held = list({ tools: [] })
  injection.release()
  assert.deepEqual(await held, { tools: [] })
  assert.equal(injection.clock.pending, 0)

  const aborted = firing('registry.slow_list', {})
  const { layer, schema } = registryFaults['registry.slow_list']
  const controller = new AbortController()
  const request = newCall({ method: 'tools/list', signal: controller.signal })
  const outcome = layer(schema.parse({}), aborted.injection)(answering({ tools: [] }))(request)
  controller.abort()
  assert.equal((await outcome).kind, 'failed')
  assert.equal(aborted.injection.clock.pending, 0)
})

test('drop_cursor ends a list early, and leaves the last page alone', async () => {
  const { injection, list } = firing('registry.drop_cursor', {})
  assert.deepEqual(await list({ tools: [], nextCursor: 'x' }), { tools: [] })
  assert.deepEqual(await list({ tools: [] }), { tools: [] })
  assert.deepEqual(injection.inapplicable, ['the page has no cursor'])
})

test('invalid_cursor gives a cursor that the server does not know', async () => {
  const { list } = firing('registry.invalid_cursor', {})
  assert.deepEqual(await list({ tools: [] }), { tools: [], nextCursor: 'aaaaaaaaaaaaaaaa' })
  assert.equal((await firing('registry.invalid_cursor', { cursor: '' }).list({ tools: [] }))?.nextCursor, '')
})

test('invalid_cursor gives all pages of a list one cursor, with any draw, so that pages go in circles', async () => {
  let drawn = 0
  const { list, through } = firing(
    'registry.invalid_cursor',
    {},
    { draws: () => ((drawn++ % 26) + 0.5) / 26 },
  )
  const first = await list({ tools: [] })
  assert.equal(first?.nextCursor, 'abcdefghijklmnop')
  assert.deepEqual(await list({ tools: [], nextCursor: '2' }, { cursor: first.nextCursor }), first)
  const ask: Ask = async (method, params) => {
    const outcome = await through(answering({ prompts: [{ name: 'p' }] }))(newCall({ method, params }))
    assert.ok(outcome.kind === 'answered')
    return outcome.result
  }
  const { entries, cut } = await fetchList('prompts', ask, 1024 ** 2, 'modern')
  assert.deepEqual([entries.length, cut, drawn], [1, 'the pages go in circles', 32])
})

test('dup_name gives a second tool the name of the first', async () => {
  const { list } = firing('registry.dup_name', {})
  const b = tool('b', { description: 'B' })
  assert.deepEqual((await list({ tools: [tool('a'), b] }))?.tools, [tool('a'), b, { ...b, name: 'a' }])
  assert.deepEqual((await list({ tools: [b] }))?.tools, [b, b])
})

test('bad_ttl gives an absurd time in an era with a lifetime of lists', async () => {
  const modern = { faultEnvironment: { kindOf: () => ({ transport: 'http', era: 'modern' }) as const } }
  const { list, injection } = firing('registry.bad_ttl', { ttlMs: -1 }, modern)
  assert.deepEqual(await list({ tools: [], ttlMs: 5 }), { tools: [], ttlMs: -1 })
  assert.deepEqual(injection.notes, [{ ttlMs: -1, was: 5 }])
  const legacy = firing('registry.bad_ttl', {})
  assert.deepEqual(await legacy.list({ tools: [] }), { tools: [] })
  assert.equal(legacy.injection.inapplicable.length, 1)
  assert.match(
    refusalOf(registryFaults['registry.bad_ttl'], { transport: 'http', era: 'legacy' }) ?? '',
    /no ttlMs/,
  )
})

test('replies other than lists pass unharmed', async () => {
  for (const type of Object.keys(registryFaults) as (keyof typeof registryFaults)[]) {
    if (['registry.slow_list', 'registry.list_changed_storm', 'registry.moved'].includes(type)) continue
    const { injection, list } = firing(
      type,
      type.endsWith('_tool') || type.endsWith('missing') ? { tools: ['a'] } : {},
    )
    assert.deepEqual(await list({ odd: 1 }), { odd: 1 }, type)
    assert.deepEqual(injection.inapplicable, ['the reply is no list'], type)
  }
})
