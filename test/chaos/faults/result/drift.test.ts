import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resultIn } from '../../../../src/chaos/fault.ts'
import { resultFaults } from '../../../../src/chaos/faults/result.ts'
import { createKeyedRandom } from '../../../../src/mesh/keyed-random.ts'
import { parseJson } from '../../../../src/protocol/jsonrpc.ts'
import { toolCall } from '../../../support/caller.ts'
import { answering, faultLayer, testInjection, type Draws } from '../../../support/injection.ts'

const order = { id: 7, state: 'open', items: [{ n: 1 }, { n: 2 }, { n: 3 }] }
const text = (value: unknown) => ({
  type: 'text',
  text: typeof value === 'string' ? value : JSON.stringify(value),
})
const reply = { content: [text(order)], structuredContent: order }
interface Changed {
  content: { text: string }[]
  structuredContent?: unknown
  _meta?: object
}

type Name = 'result.drift' | 'result.partial' | 'result.split_brain'

async function fire(type: Name, config: object, result: object = reply, draws: Draws = 0) {
  const injection = testInjection({ draws })
  const outcome = await faultLayer(resultFaults[type], config, injection)(answering(result))(toolCall('tool'))
  const changed = resultIn(outcome) as unknown as Changed
  return { injection, outcome, result: changed, read: parseJson(changed.content?.[0]?.text ?? '') }
}

const rename = { operators: [{ op: 'rename', path: '/state', to: 'status' }] }
const renamed = { id: 7, status: 'open', items: order.items }

test('drift changes text and structured content alike', async () => {
  const { injection, outcome, result, read } = await fire('result.drift', rename)
  assert.deepEqual(result.structuredContent, renamed)
  assert.deepEqual(read, renamed)
  assert.ok(injection.isChanged(outcome))
  const parts = ['/structuredContent', '/content/0/text']
  assert.deepEqual(injection.notes, [{ done: [{ op: 'rename', path: '/state', parts }] }])
})

test('drift changes only its configured side', async () => {
  const structured = await fire('result.drift', { ...rename, sync: 'structured_only' })
  assert.deepEqual([structured.result.structuredContent, structured.read], [renamed, order])
  const inText = await fire('result.drift', { ...rename, sync: 'text_only' })
  assert.deepEqual([inText.result.structuredContent, inText.read], [order, renamed])
})

test('text keeps its indentation', async () => {
  const pretty = JSON.stringify(order, null, 2)
  const { result } = await fire('result.drift', rename, { content: [text(pretty)] })
  assert.equal(result.content[0]?.text, JSON.stringify(renamed, null, 2))
})

test('operators run in order, each on the result of the operator before; operators without a place are noted', async () => {
  const operators = [
    { op: 'rename', path: '/state', to: 's' },
    { op: 'null', path: '/s' },
    { op: 'date', path: '/id' },
  ]
  const { injection, read } = await fire('result.drift', { operators })
  assert.deepEqual(read, { id: 7, s: null, items: order.items })
  assert.deepEqual(injection.notes[0]?.missed, ['date /id'])
})

test('drift without any place that fits is not applicable, and the reply is whole', async () => {
  for (const [config, result] of [
    [{ operators: [{ op: 'null', path: '/none' }] }, reply],
    [{ operators: [] }, reply],
    [{}, { content: [text('plain words')] }],
    [{ sync: 'structured_only' }, { content: [text(order)] }],
    [{ sync: 'text_only' }, { content: [], structuredContent: order }],
  ] as const) {
    const { injection, result: left } = await fire('result.drift', config, result)
    assert.deepEqual(left, result)
    assert.equal(injection.inapplicable.length, 1)
  }
})

test('automatic drift changes every reply with content, text and structured content alike, and the draws decide how', async () => {
  const random = createKeyedRandom(5)
  const seen = new Set<string>()
  for (let call = 0; call < 100; call++) {
    const draws = (purpose: string) => random(`${call}`, purpose)
    const one = await fire('result.drift', {}, reply, draws)
    assert.notDeepEqual(one.read, order)
    assert.deepEqual(one.read, one.result.structuredContent)
    assert.deepEqual((await fire('result.drift', {}, reply, draws)).read, one.read)
    seen.add(one.result.content[0]?.text ?? '')
  }
  assert.ok(seen.size > 20, `${seen.size} different replies`)
})

test('drift beyond any schema is drawn on request', async () => {
  const random = createKeyedRandom(5)
  for (let call = 0; call < 50; call++) {
    const draws = (purpose: string) => random(`${call}`, purpose)
    const { injection } = await fire('result.drift', { detectable: 'semantic' }, reply, draws)
    const [{ op }] = injection.notes[0]?.done as [{ op: string }]
    assert.ok(['drop_optional', 'unit', 'stale_value', 'precision'].includes(op), op)
  }
})

test('automatic drift takes the required members from the schema of the tool', async () => {
  const schema = { type: 'object', properties: { id: {}, state: {}, items: {} }, required: ['id'] }
  const asked: string[] = []
  const outputSchemaOf = (server: string, tool: string) => {
    asked.push(`${server}/${tool}`)
    return schema
  }
  const random = createKeyedRandom(5)
  const dropped: Record<string, Set<unknown>> = { drop_required: new Set(), drop_optional: new Set() }
  const { layer, schema: settings } = resultFaults['result.drift']
  for (let call = 0; call < 300; call++) {
    const injection = testInjection({
      draws: (purpose) => random(`${call}`, purpose),
      faultEnvironment: { outputSchemaOf },
    })
    await layer(settings.parse({}), injection)(answering(reply))(toolCall('tool', {}, { server: 'shop' }))
    const [{ op, path }] = injection.notes[0]?.done as [{ op: string; path: string }]
    if (/^\/(id|state|items)$/.test(path)) dropped[op]?.add(path)
  }
  assert.deepEqual([...dropped.drop_required!], ['/id'])
  assert.deepEqual([...dropped.drop_optional!].sort(), ['/items', '/state'])
  assert.equal(asked[0], 'shop/tool')
})

test('partial leaves out part of a list, and does not say so by default', async () => {
  const config = { operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }] }
  const { result, read } = await fire('result.partial', config)
  assert.deepEqual(read, { ...order, items: order.items.slice(0, 2) })
  assert.deepEqual(result.structuredContent, read)
  assert.equal(result._meta, undefined)
})

test('a declared partial reply says what is missing', async () => {
  const config = { declared: true, operators: [{ op: 'truncate_list', path: '/items' }] }
  const { result } = await fire('result.partial', config, { content: [text(order)], _meta: { other: 1 } })
  assert.deepEqual(result._meta, {
    other: 1,
    'dev.breakwater/partial': {
      reason: 'some of the data could not be fetched',
      missing: ['/content/0/text/items'],
    },
  })
})

test('partial cuts JSON, cuts plain text and drops blocks', async () => {
  const cut = await firePartial({ op: 'cut_json', at: 0.5 }, { content: [text('{"a":"bcd"}')] })
  assert.equal(cut.result.content[0]?.text, '{"a":')
  const plain = await firePartial({ op: 'truncate_text', bytes: 5 }, { content: [text('plain words')] })
  assert.equal(plain.result.content[0]?.text, 'plain')
  const dropped = await firePartial({ op: 'drop_blocks' }, { content: [text('"a"'), text('b')] })
  assert.deepEqual(dropped.result.content, [text('"a"')])
})

const firePartial = (operator: object, result: object) =>
  fire('result.partial', { operators: [operator] }, result)

test('automatic partial replies of plain text lose text or a block', async () => {
  const random = createKeyedRandom(1)
  const ops = new Set<unknown>()
  for (let call = 0; call < 40; call++) {
    const injection = testInjection({ draws: (purpose) => random(`${call}`, purpose) })
    const { layer, schema } = resultFaults['result.partial']
    await layer(schema.parse({}), injection)(answering({ content: [text('some words'), text('more')] }))(
      toolCall('tool'),
    )
    ops.add((injection.notes[0]?.done as { op: string }[])[0]?.op)
  }
  assert.deepEqual([...ops].sort(), ['drop_blocks', 'truncate_text'])
})

test('split_brain makes text and structured content differ', async () => {
  const inText = await fire('result.split_brain', {})
  assert.deepEqual(inText.result.structuredContent, order)
  assert.notDeepEqual(inText.read, order)
  const structured = await fire('result.split_brain', { changes: 'structured' })
  assert.deepEqual(structured.read, order)
  assert.notDeepEqual(structured.result.structuredContent, order)
})

test('split_brain beside a plain text changes the structured content, and with only one of them does nothing', async () => {
  const { injection } = await fireRaw({ content: [text('order 7 is open')], structuredContent: order })
  assert.deepEqual((injection.notes[0]?.done as { parts: string[] }[])[0]?.parts, ['/structuredContent'])
  assert.deepEqual((await fireRaw({ content: [text(order)] })).injection.inapplicable, [
    'the reply has no structured content',
  ])
  assert.deepEqual((await fireRaw({ structuredContent: order })).injection.inapplicable, [
    'the reply has no text',
  ])
})

const fireRaw = (result: object) => fire('result.split_brain', {}, result)
