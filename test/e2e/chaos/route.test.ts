import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { closeClients } from '../support/sdk-client.ts'
import { Shop } from '../support/shop.ts'
import { lanes, type Act, type Lane } from '../support/stage.ts'

/** Where calls of each lane go instead. */
const wrong = ({ name }: Lane) => (name === 'stdio-legacy' ? 'http-modern' : 'stdio-legacy')

/** The same fault for lanes that go to the same place, under a tool of its own each. */
const towards = (tool: string, type: string, fault: (server: string) => object): Act[] =>
  ['stdio-legacy', 'http-modern'].map((server) => ({
    tool: `${tool}_${server.replace('-', '_')}`,
    type,
    fault: { ...fault(server) },
    on: (lane) => wrong(lane) === server,
  }))

const toolOf = (tool: string, lane: Lane) => `${tool}_${wrong(lane).replace('-', '_')}`

const acts: readonly Act[] = [
  { tool: 'who_right', type: 'route.wrong_backend', fault: { rate: 0, server: 'http-modern' } },
  ...towards('who_routed', 'route.wrong_backend', (server) => ({ server })),
  ...towards('who_moved', 'registry.moved', (server) => ({ replacement: server, mode: 'silent' })),
  ...towards('typed_moved', 'registry.moved', (server) => ({
    replacement: `${server}/words_plain`,
    mode: 'silent',
  })),
  { tool: 'words_plain', type: 'registry.moved', fault: { rate: 0, replacement: 'http-modern' } },
  { tool: 'words_told', type: 'registry.moved', fault: { replacement: 'stdio-legacy/words_v2' } },
  ...towards('words_nowhere', 'registry.moved', (server) => ({
    replacement: `${server}/nothing`,
    mode: 'silent',
  })),
]

let shop: Shop
const pids = new Map<string, string>()

before(async () => {
  shop = await Shop.start(acts)
  for (const lane of lanes) pids.set(lane.name, (await shop.call(lane, 'who_right')).text)
  assert.equal(new Set(pids.values()).size, lanes.length)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const lane of lanes) {
  for (const [type, name] of [
    ['route.wrong_backend', 'who_routed'],
    ['registry.moved (silent)', 'who_moved'],
  ] as const) {
    test(`${lane.name}: ${type}: the answer of another server arrives as if it were the right one`, async () => {
      const tool = toolOf(name, lane)
      const got = await shop.call(lane, tool)
      assert.equal(got.text, pids.get(wrong(lane)), got.message)
      assert.deepEqual(got.meta['dev.breakwater/partial'], undefined)
      assert.deepEqual(await shop.verdicts(lane, tool), { unchecked: 1 })
      assert.deepEqual(await shop.fates(lane, tool), { escaped: 1 })
    })
  }

  test(`${lane.name}: registry.moved (silent): where the tool has a schema, another tool's answer shows`, async () => {
    const tool = toolOf('typed_moved', lane)
    const got = await shop.call(lane, tool)
    assert.equal(got.text, 'the first half of the story', got.message)
    assert.deepEqual(await shop.verdicts(lane, tool), { schema_invalid: 1 })
    assert.deepEqual(await shop.fates(lane, tool), { escaped: 1 })
  })

  test(`${lane.name}: registry.moved (silent): a tool that is not there either is an error`, async () => {
    const tool = toolOf('words_nowhere', lane)
    const { isError, code, text, message } = await shop.call(lane, tool)
    assert.ok(code === -32602 || isError === true, `${text} ${message}`)
    assert.deepEqual(await shop.fates(lane, tool), { surfaced: 1 })
  })

  test(`${lane.name}: registry.moved: a notice says where the tool is now`, async () => {
    const { code, message } = await shop.call(lane, 'words_told')
    assert.equal(code, -32602)
    assert.match(String(message), /Tool words_told has moved, use stdio-legacy\/words_v2 instead/)
    assert.deepEqual(await shop.fates(lane, 'words_told'), { surfaced: 1 })
  })
}
