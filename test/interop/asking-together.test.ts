import assert from 'node:assert/strict'
import { extname } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { agents, closeAgents, connect } from './support/agents.ts'
import { type LegacyExtras, startLegacyExtras } from './support/legacy-extras.ts'

const script = fileURLToPath(
  new URL(`support/legacy-extras-stdio${extname(import.meta.url)}`, import.meta.url),
)
const stdio = { command: process.execPath, args: [script] }

const transports = ['http', 'private', 'shared'] as const

let legacy: LegacyExtras
let gateway: Gateway

before(async () => {
  legacy = await startLegacyExtras()
  gateway = await Gateway.start({
    servers: { http: { url: legacy.url }, private: { ...stdio, sharing: 'per_session' }, shared: stdio },
  })
  await gateway.waitFor('up', ...transports)
})
after(async () => {
  await closeAgents()
  await cleanUp()
  await legacy.close()
})

const answersOf = (name: string) => ({ form: { name }, model: name, roots: [`file:///${name}`] })

const expected = (name: string) => [
  { name },
  { type: 'text', text: name },
  [{ uri: `file:///${name}` }],
  'accept',
]

for (const transport of transports) {
  for (const kind of agents) {
    test(`a ${kind.title} client answers all questions of a ${transport} legacy server`, async () => {
      const agent = await connect(kind, gateway.mcp(transport), answersOf('Ada'))
      assert.deepEqual(JSON.parse((await agent.call('survey')).text), expected('Ada'))
    })

    test(`${kind.title} clients that look alike are each asked by their own calls of a ${transport} legacy server`, async () => {
      const names = ['Ada', 'Bea', 'Cleo']
      const heard = await Promise.all(
        names.map(async (name) => {
          const agent = await connect(kind, gateway.mcp(transport), answersOf(name))
          return JSON.parse((await agent.call('survey')).text) as unknown
        }),
      )
      assert.deepEqual(heard, names.map(expected))
    })
  }
}
