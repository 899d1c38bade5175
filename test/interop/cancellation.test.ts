import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { agents, connect } from './support/agents.ts'
import { eras, type Extras, routes, startExtras } from './support/extras.ts'

let extras: Extras

before(async () => {
  extras = await startExtras()
})
after(() => extras.close())

for (const { title, url, name } of routes) {
  for (const kind of agents) {
    for (const era of eras) {
      test(`${title}: a ${era} server learns that a ${kind.title} client has cancelled`, async () => {
        const agent = await connect(kind, url(extras.gateway, era))
        const count = async () => Number((await agent.call(name(era, 'cancelled'))).text)
        const before = await count()
        const abort = new AbortController()
        let steps = 0
        const onprogress = () => void steps++
        const call = agent.call(name(era, 'wait'), {}, { onprogress, signal: abort.signal })
        const refused = assert.rejects(call)
        await until('the call is under way', () => steps === 1)
        assert.equal(await count(), before)
        abort.abort()
        await refused
        await until('the server has the cancellation', async () => (await count()) === before + 1)
      })
    }
  }
}
