import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { agents, connect } from './support/agents.ts'
import { type Extras, routes, startExtras } from './support/extras.ts'

let extras: Extras

before(async () => {
  extras = await startExtras()
})
after(() => extras.close())

for (const { title, url, name } of routes) {
  for (const kind of agents) {
    test(`${title}: a ${kind.title} client gets a legacy server's structured content`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'legacy'))
      const listed = (await agent.tools()).find((tool) => tool.name === name('legacy', 'object'))
      assert.deepEqual(listed?.outputSchema, {
        type: 'object',
        properties: { depth: { type: 'number' } },
        required: ['depth'],
      })
      assert.deepEqual((await agent.call(name('legacy', 'object'))).structured, { depth: 4.5 })
    })

    test(`${title}: a ${kind.title} client gets structured content that is no object as its era has it`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'modern'))
      const tools = await agent.tools()
      const schemaOf = (tool: string) =>
        tools.find((one) => one.name === name('modern', tool))?.outputSchema as {
          readonly type: string
          readonly properties?: Readonly<Record<string, unknown>>
        }
      const array = await agent.call(name('modern', 'array'))
      const number = await agent.call(name('modern', 'number'))
      assert.equal(array.text, '1, 2, 3')
      if (kind.era === 'modern') {
        assert.equal(schemaOf('array').type, 'array')
        assert.deepEqual(array.structured, [1, 2, 3])
        assert.equal(number.structured, 42.5)
      } else {
        assert.equal(schemaOf('array').type, 'object')
        assert.deepEqual(schemaOf('number').properties, { result: { type: 'number' } })
        assert.deepEqual(array.structured, { result: [1, 2, 3] })
        assert.deepEqual(number.structured, { result: 42.5 })
      }
    })
  }
}
