import assert from 'node:assert/strict'
import { extname } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import type { ToolResult } from './support/agent.ts'
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
    // A refused question makes the tool fail, over and over. This test is not about breakers.
    policies: { defaults: { breaker: false } },
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

/** Resolves to the answers a call received, as JSON, or to the reason there are none. */
const heard = (call: Promise<ToolResult>): Promise<unknown> =>
  call.then(
    ({ text }) => JSON.parse(text) as unknown,
    (error: unknown) => String(error),
  )

/** Servers over stdio cannot ask: their questions do not name a call. */
const unclear = /cannot tell which client this request is for/

const refused = /no roots in a shared process|cannot tell which client this request is for/

for (const transport of transports) {
  for (const kind of agents) {
    test(`a ${kind.title} client answers what a ${transport} legacy server asks`, async () => {
      const agent = await connect(kind, gateway.mcp(transport), answersOf('Ada'))
      const answer = await heard(agent.call('survey'))
      if (transport === 'shared') assert.match(String(answer), /no roots in a shared process/)
      else assert.deepEqual(answer, expected('Ada'))
    })

    test(`a ${kind.title} client answers what a ${transport} legacy server asks outside of its call`, async () => {
      const agent = await connect(kind, gateway.mcp(transport), answersOf('Ada'))
      for (let again = 0; again < 2; again++) {
        const answer = await heard(agent.call('aside'))
        if (transport === 'shared' && typeof answer === 'string') assert.match(answer, refused)
        else assert.deepEqual(answer, { name: 'Ada' })
      }
    })

    test(`no ${kind.title} client is asked outside of calls for others that look like it on a ${transport} legacy server`, async () => {
      const calls = ['Ada', 'Bea', 'Cleo'].map(async (name) => {
        const agent = await connect(kind, gateway.mcp(transport), answersOf(name))
        return [name, await heard(agent.call('aside'))] as const
      })
      for (const [name, answer] of await Promise.all(calls))
        if (typeof answer === 'string') assert.match(answer, /takes requests only during a call|cannot tell/)
        else assert.deepEqual(answer, { name })
    })

    test(`no ${kind.title} client is asked by calls of others that look like it on a ${transport} legacy server`, async () => {
      const clients = await Promise.all(
        ['Ada', 'Bea', 'Cleo'].map(async (name) => ({
          name,
          agent: await connect(kind, gateway.mcp(transport), answersOf(name)),
        })),
      )
      const calls = clients.map(async ({ name, agent }) => [name, await heard(agent.call('survey'))] as const)
      const canTell = transport === 'http' || (transport === 'private' && kind.era === 'legacy')
      for (const [name, answer] of await Promise.all(calls)) {
        if (canTell) assert.deepEqual(answer, expected(name))
        else if (typeof answer === 'string') assert.match(answer, transport === 'shared' ? refused : unclear)
        else assert.deepEqual(answer, expected(name))
      }
    })
  }
}
