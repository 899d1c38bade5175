import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import type { EventReader } from '../support/event-reader.ts'
import { armed, cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../support/raw-server.ts'

/** Each fault has its own server, with the fault's name; faults of `client` are towards agents. */
const faults: Readonly<Record<string, Json>> = {
  refused: { type: 'listen.refused', status: 503 },
  denied: { type: 'listen.refused' },
  cut: { type: 'listen.cut' },
  reset: { type: 'listen.cut', how: 'reset' },
  again: { type: 'listen.cut', then: 'replay' },
  lossy: { type: 'listen.cut', then: 'gap', afterEvents: 2 },
  brief: { type: 'listen.cut', afterEvents: 9, after: 20 },
  silent: { type: 'listen.stall', stall: '10m' },
  modern_refused: { type: 'listen.refused', status: 503 },
  modern_cut: { type: 'listen.cut', afterEvents: 2 },
  modern_silent: { type: 'listen.stall', stall: '10m', afterEvents: 1 },
}
const towardsAgents: Readonly<Record<string, Json>> = {
  agent_denied: { type: 'listen.refused' },
  agent_cut: { type: 'listen.cut' },
  agent_reset: { type: 'listen.cut', how: 'reset' },
  agent_again: { type: 'listen.cut', then: 'replay' },
  agent_lossy: { type: 'listen.cut', then: 'gap' },
  agent_silent: { type: 'listen.stall', stall: '10m' },
}
const names = [...Object.keys(faults), ...Object.keys(towardsAgents), 'armed_later']
const isModern = (name: string) => name.startsWith('modern')

/** A stream the gateway holds for an agent or for itself, as the server sees it. */
interface Held {
  readonly of: string
  readonly lastEventId: string | undefined
  readonly at: number
  readonly response: ServerResponse
  isClosed: boolean
}

const held = new Map<string, Held[]>()
const servers = new Map<string, RawServer>()
const tool = { name: 'work', inputSchema: { type: 'object' } }

/** A server that labels sessions by their client's name, and holds streams open. */
function startServer(name: string): Promise<RawServer> {
  const streams: Held[] = []
  held.set(name, streams)
  return RawServer.start(
    ({ verb, headers, message }, response) => {
      const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
      const reply = (result: Json) => sendResult(response, id, result)
      const modern = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' }
      const can = {
        capabilities: { tools: { listChanged: true } },
        serverInfo: { name: 'raw', version: '1' },
      }
      if (method === 'server/discover' && isModern(name))
        reply({ ...modern, ...can, supportedVersions: ['2026-07-28'] })
      else if (method === 'initialize') {
        const { name: who } = params?.clientInfo as { name: string }
        response.setHeader('mcp-session-id', `${who}.${servers.get(name)?.of('initialize').length}`)
        reply({ ...can, protocolVersion: params?.protocolVersion })
      } else if (method === 'tools/list') reply({ ...modern, tools: [tool] })
      else if (method === 'tools/call') reply({ ...modern, content: [{ type: 'text', text: 'done' }] })
      else if (verb === 'GET' || method === 'subscriptions/listen') {
        const info = (params?._meta as Json | undefined)?.['io.modelcontextprotocol/clientInfo'] as
          { name: string } | undefined
        const of = info?.name ?? String(headers['mcp-session-id']).split('.')[0]!
        const lastEventId = headers['last-event-id'] as string | undefined
        const stream: Held = { of, lastEventId, at: performance.now(), response, isClosed: false }
        response.once('close', () => (stream.isClosed = true))
        response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
        if (method !== undefined) {
          const acknowledged = { notifications: params?.notifications, _meta: listenMeta(id) }
          tell(stream, undefined, 'notifications/subscriptions/acknowledged', acknowledged)
        }
        streams.push(stream)
      } else return false
      return true
    },
    ['work'],
  )
}

const listenMeta = (id: unknown) => ({ 'io.modelcontextprotocol/subscriptionId': id })

function tell({ response }: Held, id: string | undefined, method: string, params: Json): void {
  const text = JSON.stringify({ jsonrpc: '2.0', method, params })
  response.write(`${id === undefined ? '' : `id: ${id}\n`}data: ${text}\n\n`)
}

const say = (stream: Held, n: number) =>
  tell(stream, `event-${n}`, 'notifications/message', { level: 'info', data: n })

let gateway: Gateway

before(async () => {
  for (const name of names) servers.set(name, await startServer(name))
  const entry = ([name, { url }]: [string, RawServer]) => [
    name,
    { url, era: isModern(name) ? 'modern' : 'legacy' },
  ]
  const aimed =
    (side: string) =>
    ([name, fault]: [string, Json]) => ({ name, side, maxConcurrent: 100, match: { server: name }, ...fault })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: Object.fromEntries([...servers].map(entry)),
    chaos: armed([
      ...Object.entries(faults).map(aimed('upstream')),
      ...Object.entries(towardsAgents).map(aimed('client')),
    ]),
  })
  await gateway.waitFor('up', ...names)
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Returns the streams for agents, called `raw`, without the gateway's own. */
const ofAgents = (name: string) => held.get(name)!.filter(({ of }) => of === 'raw')

async function streamOf(name: string, nth: number): Promise<Held> {
  await until(`stream ${nth} of ${name} is open`, () => ofAgents(name).length >= nth)
  return ofAgents(name)[nth - 1]!
}

async function listening(name: string): Promise<{ client: RawClient; reader: EventReader }> {
  const client = await RawClient.open(gateway.mcp(name))
  return { client, reader: await client.listen() }
}

const heard = (reader: EventReader) =>
  reader.messages('notifications/message').map(({ params }) => (params as Json).data)

const hears = (reader: EventReader, n: number) => until(`${n} is heard`, () => heard(reader).includes(n))

const tally = async (fault: string, of: 'discovery' | 'agents'): Promise<Record<string, number>> => {
  const { body } = await gateway.admin<{ faults: ({ name: string } & Json)[] }>('/admin/chaos')
  const found = body.faults.find(({ name }) => name === fault)!
  return (of === 'agents' ? found : found.discovery) as Record<string, number>
}

for (const name of ['refused', 'denied'])
  test(`listen.refused (${name}): the server is not asked for its stream, and calls go on`, async () => {
    const { client, reader } = await listening(name)
    assert.equal(await client.say('work'), 'done')
    await until('the fault has hit the stream', async () => ((await tally(name, 'discovery')).hits ?? 0) > 0)
    assert.ok((await gateway.metric('breakwater_discovery_faults_injected_total', `fault="${name}"`)) ?? 0)
    assert.equal(held.get(name)!.length, 0)
    assert.deepEqual(heard(reader), [])
    assert.equal(reader.ended, false)
  })

for (const name of ['cut', 'reset'])
  test(`listen.cut (${name}): the stream breaks behind an event, and is taken up again there, each time`, async () => {
    const { client, reader } = await listening(name)
    const saidAt: number[] = []
    for (let n = 1; n <= 2; n++) {
      const stream = await streamOf(name, n)
      assert.equal(stream.lastEventId, n === 1 ? undefined : `event-${n - 1}`)
      saidAt.push(performance.now())
      say(stream, n)
      await hears(reader, n)
      await until('the server sees the end', () => stream.isClosed)
      assert.equal(await client.say('work'), 'done')
    }
    const second = await streamOf(name, 2)
    assert.ok(second.at - saidAt[0]! >= 900, 'the next stream comes after a pause')
    assert.equal(reader.ended, false)
  })

test('listen.cut, replay: the server repeats events already seen', async () => {
  const { reader } = await listening('again')
  say(await streamOf('again', 1), 1)
  await streamOf('again', 2)
  say(await streamOf('again', 2), 2)
  await hears(reader, 2)
  assert.deepEqual(heard(reader), [1, 1, 2])
})

test('listen.cut, gap: events sent meanwhile are lost', async () => {
  const { reader } = await listening('lossy')
  const first = await streamOf('lossy', 1)
  for (const n of [1, 2]) say(first, n)
  const second = await streamOf('lossy', 2)
  for (const n of [3, 4]) say(second, n)
  await hears(reader, 4)
  assert.deepEqual(heard(reader), [1, 2, 4])
})

test('listen.cut: a stream that breaks as soon as it is open is asked for with pauses that double', async () => {
  // Measured from before the request, because the server may notice it late.
  const since = performance.now()
  await listening('brief')
  const [second, third] = [await streamOf('brief', 2), await streamOf('brief', 3)]
  assert.ok(second.at - since >= 900, `${second.at - since} ms`)
  assert.ok(third.at - since >= 2_800, `${third.at - since} ms`)
})

test('listen.cut, modern era: the subscription is asked for anew', async () => {
  const { reader } = await listening('modern_cut')
  const first = await streamOf('modern_cut', 1)
  tell(first, undefined, 'notifications/tools/list_changed', { _meta: listenMeta('x') })
  await reader.next('the change', ({ method }) => method === 'notifications/tools/list_changed')
  await until('the server sees the end', () => first.isClosed)
  await streamOf('modern_cut', 2)
})

test('listen.refused, modern era: the server is not asked for its stream', async () => {
  const { client } = await listening('modern_refused')
  assert.equal(await client.say('work'), 'done')
  assert.equal(held.get('modern_refused')!.length, 0)
})

test('towards agents, listen.refused: both eras get the status, and calls go on', async () => {
  const { client, reader } = await listening('agent_denied')
  assert.equal(reader.status, 405)
  assert.equal(await client.say('work'), 'done')
  const modern = new ModernClient(gateway.mcp('agent_denied'))
  const { status } = await modern.ask('subscriptions/listen', { notifications: { toolsListChanged: true } })
  assert.equal(status, 405)
  assert.equal((await tally('agent_denied', 'agents')).surfaced, 2)
})

for (const name of ['agent_cut', 'agent_reset'])
  test(`towards agents, listen.cut (${name}): the stream breaks behind an event, and can be taken up again`, async () => {
    const { client, reader } = await listening(name)
    const stream = await streamOf(name, 1)
    say(stream, 1)
    await until('the stream is over', () => reader.ended)
    assert.deepEqual(heard(reader), [1])
    assert.ok(reader.broken, 'the reply ended without its promised end')
    say(stream, 2)
    assert.equal(await client.say('work'), 'done')
    const second = await client.listen(reader.events.at(-1)!.id)
    await hears(second, 2)
    assert.equal(stream.isClosed, false)
  })

for (const [name, expected] of [
  ['agent_again', [1]],
  ['agent_lossy', [3]],
] as const)
  test(`towards agents, listen.cut (${name}): the next stream begins in the wrong place`, async () => {
    const { client, reader } = await listening(name)
    const stream = await streamOf(name, 1)
    say(stream, 1)
    await until('the stream is over', () => reader.ended)
    for (const n of [2, 3]) say(stream, n)
    // Messages on the server's stream arrive before the answer to a later ping.
    await until('both sessions are open', async () => {
      const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
      return body.sessions.length > 0 && (await client.say('work')) === 'done'
    })
    const second = await client.listen(reader.events.at(-1)!.id)
    await until('the second stream is over', () => second.ended)
    assert.deepEqual(heard(second), expected)
  })

test('arming a fault hits streams already open, and lifting the fault spares them', async () => {
  const { reader } = await listening('armed_later')
  const first = await streamOf('armed_later', 1)
  say(first, 1)
  await hears(reader, 1)
  const config = { type: 'listen.cut', rate: 1 }
  const { body } = await gateway.post<{ faultId: string }>('/chaos/inject', { target: 'armed_later', config })
  assert.ok(body.faultId, JSON.stringify(body))
  const second = await streamOf('armed_later', 2)
  assert.equal(second.lastEventId, 'event-1')
  assert.equal(first.isClosed, true)
  say(second, 2)
  const third = await streamOf('armed_later', 3)
  assert.equal(second.isClosed, true)
  await gateway.post('/chaos/clear', { faultId: body.faultId })
  for (const n of [3, 4, 5]) say(third, n)
  await hears(reader, 5)
  assert.deepEqual(heard(reader), [1, 2, 3, 4, 5])
  assert.equal(third.isClosed, false)
})

test('stopping all faults releases silent streams, and the gateway reopens refused streams', async () => {
  const { client, reader } = await listening('silent')
  const modern = await listening('modern_silent')
  const agent = await listening('agent_silent')
  say(await streamOf('silent', 1), 1)
  say(await streamOf('agent_silent', 1), 1)
  const told = await streamOf('modern_silent', 1)
  tell(told, undefined, 'notifications/tools/list_changed', { _meta: listenMeta('x') })
  for (const one of [client, modern.client, agent.client]) assert.equal(await one.say('work'), 'done')
  assert.deepEqual([heard(reader), heard(agent.reader)], [[], []])
  assert.deepEqual(modern.reader.messages('notifications/tools/list_changed'), [])
  gateway.program.signal('SIGUSR2')
  await hears(reader, 1)
  await hears(agent.reader, 1)
  await modern.reader.next('the change', ({ method }) => method === 'notifications/tools/list_changed')
  for (const name of ['refused', 'denied', 'modern_refused']) await streamOf(name, 1)
})
