import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import type { AgentKind } from './support/agent.ts'
import { agents, closeAgents, connect } from './support/agents.ts'
import { type Feature, features, ownRoute, type Route, sharedRoute } from './support/pairs.ts'
import { form, type RunningSubjects, startSubjects, type Subject, subjects } from './support/subjects.ts'

let servers: RunningSubjects
let gateway: Gateway

before(async () => {
  servers = await startSubjects()
  gateway = await Gateway.start({ servers: servers.entries })
  await gateway.waitFor('up', ...subjects.map(({ name }) => name))
})
after(async () => {
  await closeAgents()
  await cleanUp()
  await servers.close()
})

/**
 * Every feature the eras share passes in all pairs, so no cell is marked impossible. Each server offers every feature.
 * Where the eras differ (questions during a call), the gateway translates.
 */
const green = new Map<string, Feature[]>()
const cell = (route: Route, kind: AgentKind, subject: Subject) =>
  `${route.title} ${kind.title} ${subject.name}`

for (const route of [ownRoute, sharedRoute]) {
  for (const kind of agents) {
    for (const subject of subjects) {
      test(`${route.title}: a ${kind.title} client has all of "${subject.title}"`, async (t) => {
        const agent = await connect(kind, gateway.mcp(route.server(subject)), { form })
        assert.equal(agent.version, kind.version)
        const passed: Feature[] = []
        green.set(cell(route, kind, subject), passed)
        for (const [feature, check] of Object.entries(features)) {
          await t.test(feature, async () => {
            await check(agent, subject, route)
            passed.push(feature as Feature)
          })
        }
      })
    }
  }

  test(`${route.title}: every pair of client and server is green`, (t) => {
    const all = Object.keys(features)
    for (const kind of agents) {
      for (const subject of subjects) {
        const passed = green.get(cell(route, kind, subject)) ?? []
        const failed = all.filter((feature) => !passed.includes(feature as Feature))
        t.diagnostic(
          `${route.title} | ${kind.title} | ${subject.title} | ${failed.length === 0 ? 'green' : `red: ${failed.join()}`}`,
        )
        assert.deepEqual(failed, [])
      }
    }
  })
}
