import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingProcess, CountingServer } from './support/counting.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, newFolder, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'

const AWAY_MS = 3_000
/** For how long connections break, in milliseconds. */
const RESETS_MS = 400
const PAUSE_MS = 50
/** For how long calls of agents that have left may block others, in milliseconds. */
const KEPT_OUT_MS = 2_000

after(async () => {
  await cleanUp()
  closeServers()
})

/** Agents that call one tool repeatedly. */
class Crowd {
  readonly told: Told[] = []
  #isOver = false
  #calls = 0
  readonly #loops: readonly Promise<void>[]

  private constructor(agents: readonly Agent[], tool: string) {
    this.#loops = agents.map((agent) => this.#call(agent, tool))
  }

  static async start(gateway: Gateway, server: string, size: number, tool: string): Promise<Crowd> {
    const eras = ['legacy', 'modern'] as const
    const agents = await Promise.all(
      Array.from({ length: size }, (_, index) => Agent.open(eras[index % 2]!, gateway.mcp(server))),
    )
    return new Crowd(agents, tool)
  }

  async hasGoneOn(): Promise<void> {
    const enough = this.told.length + 2 * this.#loops.length
    await until('the agents go on', () => this.told.length >= enough)
  }

  async end(): Promise<readonly Told[]> {
    this.#isOver = true
    await Promise.all(this.#loops)
    return this.told
  }

  async #call(agent: Agent, tool: string): Promise<void> {
    while (!this.#isOver) {
      this.told.push(await agent.call(tool, { token: `${tool}-${this.#calls++}` }, { patienceMs: 60_000 }))
      await setTimeout(PAUSE_MS)
    }
  }
}

const lost = (told: readonly Told[]) => told.filter(({ kind }) => kind !== 'result')
const open = (gateway: Gateway, server: string) => RawClient.open(gateway.mcp(server))
const gateOf = async (gateway: Gateway, server: string) => {
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  return body.find((row) => row.server === server && row.tool === '*')
}

// Each test has its own gateway, and mostly waits.
describe('gates', { concurrency: 3 }, () => {
  test('a server over HTTP that is away for 3 s under 8 readers loses no read', async () => {
    const server = await CountingServer.start('legacy')
    const gateway = await Gateway.start({ servers: { away: { url: server.urls[0], trusted: true } } })
    await gateway.waitFor('up', 'away')
    const readers = await Crowd.start(gateway, 'away', 8, 'read')
    await readers.hasGoneOn()
    await server.program.kill()
    await until('calls wait at the gate', async () => Number((await gateOf(gateway, 'away'))?.waiting) === 8)
    assert.equal((await gateOf(gateway, 'away'))?.state, 'open')
    await setTimeout(AWAY_MS)
    await server.revive()
    await readers.hasGoneOn()
    assert.deepEqual(talliesOf(lost(await readers.end())), {})
    assert.deepEqual(
      [(await gateOf(gateway, 'away'))?.state, (await gateOf(gateway, 'away'))?.waiting],
      ['closed', 0],
    )
  })

  test('a process that is killed twice and takes 3 s to start loses no read of 16 readers, and runs no write twice', async () => {
    const counting = await CountingProcess.prepare('legacy')
    const { command, args } = counting.entry as { command: string; args: string[] }
    // The first start is fast.
    const mark = join(await newFolder(), 'started')
    const slowly = `[ -e "$0" ] && sleep ${AWAY_MS / 1_000}; : > "$0"; exec "$@"`
    const entry = { command: 'sh', args: ['-c', slowly, mark, command, ...args], trusted: true }
    const gateway = await Gateway.start({ servers: { slow: entry } })
    await gateway.waitFor('up', 'slow')
    const readers = await Crowd.start(gateway, 'slow', 16, 'read')
    const writers = await Crowd.start(gateway, 'slow', 4, 'write')
    await readers.hasGoneOn()
    await writers.hasGoneOn()
    for (let kills = 0; kills < 2; kills++) {
      counting.kill()
      await readers.hasGoneOn()
      await writers.hasGoneOn()
    }
    assert.deepEqual(talliesOf(lost(await readers.end())), {})
    const ends = await writers.end()
    // An agent with a write under way hears that it may have run.
    for (const told of lost(ends))
      assert.ok(told.kind === 'error' && told.sent === true, JSON.stringify(told))
    const writes = Object.entries(counting.runs()).filter(([token]) => token.startsWith('write-'))
    assert.deepEqual(
      writes.filter(([, runs]) => runs !== 1),
      [],
    )
    assert.ok(writes.length >= ends.length - lost(ends).length)
  })

  test('8 readers lose at most one call through 400 ms in which every connection is reset', async () => {
    const server = await FlakyServer.start()
    const gateway = await Gateway.start({ servers: { resetting: { url: server.url, trusted: true } } })
    await gateway.waitFor('up', 'resetting')
    const readers = await Crowd.start(gateway, 'resetting', 8, 'read')
    await readers.hasGoneOn()
    await server.behave({ read: { reset: 1 } })
    await setTimeout(RESETS_MS)
    await server.behave({ read: {} })
    await readers.hasGoneOn()
    const failed = lost(await readers.end())
    assert.ok(failed.length <= 1, JSON.stringify(talliesOf(failed)))
    assert.ok(
      Number(await gateway.metric('breakwater_retries_total', 'decision="sent"')) > 0,
      'some calls were retried',
    )
  })

  test('40 agents that close their sockets in a hanging call keep nobody out once the server is well', async () => {
    const server = await FlakyServer.start()
    await server.behave({ read: { hang: true } })
    const gateway = await Gateway.start({ servers: { hanging: { url: server.url, trusted: true } } })
    await gateway.waitFor('up', 'hanging')
    const others = await Promise.all(Array.from({ length: 4 }, () => open(gateway, 'hanging')))
    const agents = await Promise.all(Array.from({ length: 40 }, () => open(gateway, 'hanging')))
    const hanging = agents.map(async ({ url, headers }) => {
      const gone = new AbortController()
      const accept = 'application/json, text/event-stream'
      const params = { name: 'read', arguments: {} }
      const calling = fetch(url, {
        method: 'POST',
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
        headers: { ...headers, 'content-type': 'application/json', accept },
        signal: gone.signal,
      })
      return { gone, calling: calling.catch(() => undefined) }
    })
    await gateway.waitForCalls(agents.length)
    const ending = await Promise.all(hanging)
    await server.behave({ read: {} })
    for (const { gone } of ending) gone.abort()
    await Promise.all(ending.map(({ calling }) => calling))
    const since = performance.now()
    for (const said of await Promise.all(others.map((one) => one.say('read')))) assert.match(said, /^read by/)
    const tookMs = performance.now() - since
    assert.ok(tookMs < KEPT_OUT_MS, `${tookMs} ms`)
  })

  test("one agent's bad arguments refuse none of the others' calls", async () => {
    const server = await RawServer.start(
      ({ message: { id, method, params } }, response) => {
        if (method !== 'tools/call') return false
        const { token } = (params as { arguments: Json }).arguments
        const good = { result: { content: [{ type: 'text', text: 'fine' }] } }
        const bad = { error: { code: -32603, message: 'cannot read property of undefined' } }
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, ...(token === undefined ? bad : good) }))
        return true
      },
      ['look'],
    )
    const gateway = await Gateway.start({ servers: { picky: { url: server.url } } })
    await gateway.waitFor('up', 'picky')
    const wrong = await open(gateway, 'picky')
    const others = await Crowd.start(gateway, 'picky', 4, 'look')
    for (let call = 0; call < 40; call++)
      assert.deepEqual((await wrong.call('look')).error, {
        code: -32603,
        message: 'cannot read property of undefined',
      })
    await others.hasGoneOn()
    assert.deepEqual(talliesOf(lost(await others.end())), {})
  })

  test('a write that was sent and lost is never sent again, while one that was refused waits and runs once', async () => {
    const server = await CountingServer.start('legacy')
    const gateway = await Gateway.start({ servers: { ledger: { url: server.urls[0], trusted: true } } })
    await gateway.waitFor('up', 'ledger')
    const agent = await Agent.open('legacy', gateway.mcp('ledger'))
    const sent = agent.call('write', { token: 'lost', ms: 60_000 })
    await until('the call has run', async () => (await server.runs()).lost === 1)
    await server.tell(0, 'down')
    const told = await sent
    assert.ok(told.kind === 'error' && told.sent === true, JSON.stringify(told))
    const refused = agent.call('write', { token: 'refused' })
    await until('the call waits', async () => (await gateOf(gateway, 'ledger'))?.waiting === 1)
    await server.tell(0, 'up')
    assert.deepEqual(await refused, { kind: 'result' })
    assert.deepEqual(await agent.call('write', { token: 'later' }), { kind: 'result' })
    assert.deepEqual(await server.runs(), { lost: 1, refused: 1, later: 1 })
  })

  test('a call of the next config does not wait for the address that a server had before', async () => {
    const [gone, here] = [await FlakyServer.start(), await FlakyServer.start()]
    const parts = (url: string) => ({ servers: { moved: { url, trusted: true } } })
    const gateway = await Gateway.start(parts(gone.url))
    await gateway.waitFor('up', 'moved')
    const [first, second] = [await open(gateway, 'moved'), await open(gateway, 'moved')]
    await first.say('write')
    await gone.program.kill()
    const waiting = first.call('write')
    await until('the call waits', async () => (await gateOf(gateway, 'moved'))?.waiting === 1)
    await gateway.reconfigure(parts(here.url))
    assert.equal((await gateway.post('/admin/reload')).status, 200)
    // The second call uses none of the state kept for the lost address.
    const since = performance.now()
    assert.match(await second.say('write'), /^written/)
    assert.ok(performance.now() - since < 10_000, 'the call waited for the lost address')
    await first.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'raw-2' } })
    await waiting.catch(() => undefined)
  })

  test('a call that is cancelled while it waits at a gate ends, and its session with it', async () => {
    const server = await CountingServer.start('legacy')
    const gateway = await Gateway.start({ servers: { away: { url: server.urls[0], trusted: true } } })
    await gateway.waitFor('up', 'away')
    const [one, two] = [
      await Agent.open('legacy', gateway.mcp('away')),
      await Agent.open('legacy', gateway.mcp('away')),
    ]
    await server.tell(0, 'down')
    const waits = async (count: number) =>
      until(`${count} wait`, async () => (await gateOf(gateway, 'away'))?.waiting === count)
    void one.call('write', { token: 'cancelled' }, { id: 'x' })
    void two.call('write', { token: 'left' })
    await waits(2)
    await one.cancel('x')
    await waits(1)
    await two.session?.leave()
    await waits(0)
    await server.tell(0, 'up')
    assert.deepEqual(await one.call('write', { token: 'later' }), { kind: 'result' })
    assert.deepEqual(await server.runs(), { later: 1 })
  })

  test('a gateway that stops waits no longer than its drain for a call at a gate, which hears that it was not sent', async () => {
    const server = await CountingServer.start('legacy')
    const gateway = await Gateway.start({
      servers: { away: { url: server.urls[0], trusted: true } },
      gateway: { drain: '1s' },
    })
    await gateway.waitFor('up', 'away')
    const agent = await Agent.open('legacy', gateway.mcp('away'))
    await server.tell(0, 'down')
    const waiting = agent.call('write', { token: 'waits' })
    await until('the call waits', async () => (await gateOf(gateway, 'away'))?.waiting === 1)
    gateway.program.signal('SIGTERM')
    const told = await waiting
    assert.ok(told.kind === 'error' && told.sent === false, JSON.stringify(told))
    assert.equal((await gateway.program.ended).code, 0)
    assert.ok(!gateway.log.some(({ msg }) => String(msg).startsWith('the shutdown takes too long')))
  })
})
