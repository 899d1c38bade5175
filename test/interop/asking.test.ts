import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Answers } from './support/agent.ts'
import { agents, connect } from './support/agents.ts'
import { type Extras, routes, startExtras } from './support/extras.ts'

let extras: Extras

before(async () => {
  extras = await startExtras()
})
after(() => extras.close())

const answers: Answers = { form: { name: 'Ada' }, model: 'Paris', roots: ['file:///harbour'] }
const model = { model: 'test', role: 'assistant', content: { type: 'text', text: 'Paris' } }
const roots = { roots: [{ uri: 'file:///harbour' }] }
const form = { action: 'accept', content: { name: 'Ada' } }

for (const { title, url, name, uri } of routes) {
  for (const kind of agents) {
    test(`${title}: a ${kind.title} client answers a legacy server in one round after the other`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'legacy'), answers)
      const { text } = await agent.call(name('legacy', 'survey'))
      assert.deepEqual(JSON.parse(text), [{ name: 'Ada' }, model.content, roots.roots, 'accept'])
    })

    test(`${title}: a ${kind.title} client answers everything that a modern server asks at once`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'modern'), answers)
      const { text } = await agent.call(name('modern', 'ask'))
      assert.deepEqual(JSON.parse(text), { form, url: { action: 'accept' }, sampling: model, roots })
    })

    test(`${title}: a ${kind.title} client answers a modern server in several rounds`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'modern'), answers)
      const { text } = await agent.call(name('modern', 'survey'))
      assert.deepEqual(JSON.parse(text), [
        { form },
        { sampling: model, roots },
        { url: { action: 'accept' } },
      ])
    })

    test(`${title}: a ${kind.title} client waits for a modern server that is busy`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'modern'))
      assert.equal((await agent.call(name('modern', 'busy'))).text, '2')
    })

    test(`${title}: a ${kind.title} client is asked by prompts and resources of a modern server`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'modern'), answers)
      assert.deepEqual(JSON.parse(await agent.prompt(name('modern', 'asking'))), form)
      assert.deepEqual(JSON.parse(await agent.read(uri('modern', 'test://asking'))), roots)
    })
  }
}
