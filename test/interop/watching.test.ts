import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import type { Agent } from './support/agent.ts'
import { agents, connect } from './support/agents.ts'
import { eras, type Extras, routes, startExtras } from './support/extras.ts'
import { v2Pinned } from './support/v2-agent.ts'

/** Number of checks for the notification before another change. */
const LOOKS_A_CHANGE = 50

let extras: Extras

before(async () => {
  extras = await startExtras()
})
after(() => extras.close())

for (const { title, url, name, uri } of routes) {
  for (const kind of agents) {
    for (const era of eras) {
      test(`${title}: a ${kind.title} client hears of a ${era} server's resources that it asked for`, async () => {
        const agent = await connect(kind, url(extras.gateway, era))
        const other = await connect(kind, url(extras.gateway, era))
        const touch = (item: string) => other.call(name(era, 'touch'), { uri: item })
        const stop = await agent.watch([uri(era, 'test://item/3')])
        const updates = (one: Agent) => one.told.filter((change) => change !== 'tools')
        await until('the agent hears of both resources', async () => {
          await touch('test://item/4')
          await touch('test://item/3')
          return updates(agent).length > 0
        })
        assert.deepEqual([...new Set(updates(agent))], [`resource ${uri(era, 'test://item/3')}`])
        assert.deepEqual(updates(other), [])
        await stop()
      })

      test(`${title}: a ${kind.title} client hears that a ${era} server's tools changed`, async () => {
        const agent = await connect(kind, url(extras.gateway, era))
        const stop = await agent.watch([])
        const other = await connect(kind, url(extras.gateway, era))
        const change = async () => (await other.call(name(era, 'change_tools'))).text === 'true'
        const listed = async () => (await agent.tools()).some((tool) => tool.name === name(era, 'sometimes'))
        // Not at each check: a tool removed before the gateway has seen it makes no change.
        let looks = 0
        await until('the agent hears of the change', async () => {
          if (looks++ % LOOKS_A_CHANGE === 0) await change()
          return agent.told.includes('tools')
        })
        for (let times = 0; times < 2; times++) {
          const there = await change()
          await until('the tool has come or gone', async () => (await listed()) === there)
        }
        await stop()
      })
    }
  }
}

test('a legacy server is no longer asked for resources of which no modern client wants to hear', async () => {
  const item = 'test://item/8'
  const watched = () => [...extras.legacy.facts.conversations.values()].some((uris) => uris.has(item))
  const first = await connect(v2Pinned, extras.gateway.mcp('legacy'))
  const second = await connect(v2Pinned, extras.gateway.mcp('legacy'))
  const stopFirst = await first.watch([item])
  const stopSecond = await second.watch([item])
  await until('the server was asked', watched)
  await stopFirst()
  await until('the second client still hears of the resource', async () => {
    await second.call('touch', { uri: item })
    return second.told.includes(`resource ${item}`)
  })
  await stopSecond()
  await until('the server was told to stop', () => !watched())
})
