import assert from 'node:assert/strict'
import { Agent, request } from 'node:http'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { policies } from '../../src/policies/index.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, newFolder } from './support/gateway.ts'
import { closeServers, RawServer, sendResult } from './support/raw-server.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

const CALLS = 8_000
const AGENTS = 8

const probe = fileURLToPath(new URL('../support/allocation-probe.js', import.meta.url))

const none = Object.fromEntries(Object.keys(policies).map((name) => [name, false]))

/** Most bytes that a call may allocate; a change that needs more must say why. */
const most = { 'the default policies': [{}, 26_000], 'no policies': [none, 20_000] } as const

for (const [name, [defaults, bytes]] of Object.entries(most))
  test(`a call allocates at most ${bytes} bytes with ${name}`, async (t) => {
    const server = await RawServer.start(
      ({ message: { id, method } }, response) =>
        method === 'tools/call' && sendResult(response, id, { content: [{ type: 'text', text: 'hello' }] }),
      ['echo'],
    )
    const file = join(await newFolder(), 'allocations')
    const gateway = await Gateway.start(
      {
        servers: { upstream: { url: server.url } },
        gateway: { http: 'own', limits: { perSession: false, perTenant: false } },
        policies: { defaults },
      },
      { nodeArgs: ['--import', probe], env: { ALLOCATIONS: file } },
    )
    await gateway.waitFor('up', 'upstream')
    const agent = new Agent({ keepAlive: true, maxSockets: AGENTS })
    t.after(() => agent.destroy())
    const sessions = await Promise.all(Array.from({ length: AGENTS }, () => opened(gateway, agent)))
    const calls = () =>
      Promise.all(
        sessions.map(async (headers) => {
          for (let id = 0; id < CALLS / AGENTS; id++) await called(gateway, agent, headers, id)
        }),
      )
    const written = () => readFile(file, 'utf8').catch(() => '')
    // The first calls are slow, because their code is not compiled yet.
    await calls()
    process.kill(gateway.program.pid, 'SIGUSR2')
    await until('the sampling has begun', async () => (await written()) === 'begun')
    await calls()
    process.kill(gateway.program.pid, 'SIGUSR2')
    await until('the sampling has ended', async () => Number(await written()) > 0)
    const perCall = Math.round(Number(await written()) / CALLS)
    t.diagnostic(`${perCall} bytes a call`)
    assert.ok(perCall <= bytes, `${perCall} bytes a call`)
  })

type Headers = Readonly<Record<string, string>>

async function opened(gateway: Gateway, agent: Agent): Promise<Headers> {
  const clientInfo = { name: 'test', version: '1' }
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
  const { headers } = await posted(gateway, agent, {}, { id: 0, method: 'initialize', params })
  const session = {
    'mcp-session-id': String(headers['mcp-session-id']),
    'mcp-protocol-version': '2025-06-18',
  }
  await posted(gateway, agent, session, { method: 'notifications/initialized' })
  return session
}

async function called(gateway: Gateway, agent: Agent, headers: Headers, id: number): Promise<void> {
  const params = { name: 'echo', arguments: { text: 'hello' } }
  const { text } = await posted(gateway, agent, headers, { id, method: 'tools/call', params })
  assert.ok(text.includes('"result"'), text)
}

/** Posts a message by Node's client: the SDK's own client would take most of the time of this test. */
function posted(gateway: Gateway, agent: Agent, session: Headers, message: object) {
  const body = JSON.stringify({ jsonrpc: '2.0', ...message })
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': Buffer.byteLength(body),
    ...session,
  }
  return new Promise<{ headers: NodeJS.Dict<string | string[]>; text: string }>((resolve, reject) => {
    const sent = request(gateway.mcp('upstream'), { method: 'POST', agent, headers }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (piece: string) => (text += piece))
      response.on('end', () => resolve({ headers: response.headers, text }))
    })
    sent.on('error', reject).end(body)
  })
}
