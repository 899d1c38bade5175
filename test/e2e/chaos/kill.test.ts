import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, test, type TestContext } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

const CALLS = 1_000
const SESSIONS = 10
/** What is promised is 100 ms; the machine of a test may do other things meanwhile. */
const SLACK_MS = 1_000

after(cleanUp)

interface Status {
  readonly state: string
  readonly faults: readonly { readonly concurrent: number }[]
}

const heldBy = async (gateway: Gateway) => {
  const { body } = await gateway.admin<Status>('/admin/chaos')
  return body.faults[0]?.concurrent ?? 0
}

interface Entry {
  readonly kind: string
  /** In milliseconds since the Unix epoch, by the gateway's clock. */
  readonly at: number
  readonly type?: string
}

/** How long after the kill the last of the calls was over for the gateway, by its journal. */
async function releasedWithin(journal: string): Promise<number> {
  let entries: readonly Entry[] = []
  await until('the journal says what became of all calls', async () => {
    const lines = (await readFile(journal, 'utf8')).split('\n').filter((line) => line.endsWith('}'))
    entries = lines.map((line) => (JSON.parse(line) as { record: Entry }).record)
    return entries.filter(({ kind }) => kind === 'fate').length >= CALLS
  })
  const killed = entries.find((entry) => entry.kind === 'control' && entry.type === 'killed')
  const over = entries.flatMap(({ kind, at }) => (kind === 'fate' ? at : []))
  return Math.max(...over) - (killed?.at ?? NaN)
}

/** A gateway before a server to which no connection works. */
async function silentGateway(journal: string): Promise<Gateway> {
  const { url } = await FlakyServer.start()
  const gateway = await Gateway.start({
    gateway: { environment: 'test', sessions: { maxInFlight: CALLS } },
    servers: { flaky: { url, trusted: true, connections: 1_000 } },
    policies: { defaults: { bulkhead: false } },
    chaos: {
      enabled: true,
      persist: true,
      journal: { file: journal },
      faults: [
        {
          name: 'silence',
          type: 'conn.half_open',
          rate: 1,
          ttl: '10m',
          hold: '10m',
          maxConcurrent: 2 * CALLS,
          allowWrites: true,
          match: { server: 'flaky', method: 'tools/call' },
        },
      ],
    },
  })
  await gateway.waitFor('up', 'flaky')
  return gateway
}

interface Return {
  readonly at: number
  readonly body: string
}

/** Calls a tool in a client's session, and says when the reply began: a client that does more would measure itself. */
function callLightly({ url, headers }: RawClient, id: number): Promise<Return> {
  return new Promise((resolve, reject) => {
    const accept = 'application/json, text/event-stream'
    const json = { 'content-type': 'application/json', accept, ...headers }
    const sent = request(url, { method: 'POST', headers: json, agent: false }, (response) => {
      const at = performance.now()
      text(response).then((body) => resolve({ at, body }), reject)
    })
    sent.on('error', reject)
    sent.end(
      JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'read', arguments: {} } }),
    )
  })
}

/** Has a fault hold all calls, kills, and says how long it took until the last of them was answered. */
async function killUnderLoad(t: TestContext, kill: (gateway: Gateway) => unknown): Promise<void> {
  const journal = join(await newFolder(), 'journal.jsonl')
  const gateway = await silentGateway(journal)
  const clients = await Promise.all(
    Array.from({ length: SESSIONS }, () => RawClient.open(gateway.mcp('flaky'))),
  )
  let returned = 0
  const calls = Array.from({ length: CALLS }, (_, index) =>
    callLightly(clients[index % SESSIONS]!, index).finally(() => returned++),
  )
  await until(`${CALLS} calls are held`, async () => (await heldBy(gateway)) === CALLS)
  assert.equal(returned, 0)
  const killedAt = performance.now()
  await kill(gateway)
  const returns = await Promise.all(calls)
  for (const { body } of returns) assert.match(body, /read by/)
  const arrivedMs = Math.max(...returns.map(({ at }) => at)) - killedAt
  const releasedMs = await releasedWithin(journal)
  t.diagnostic(
    `${CALLS} held calls: released within ${releasedMs} ms, with their callers ${arrivedMs.toFixed(0)} ms after the kill`,
  )
  assert.ok(releasedMs < SLACK_MS)
  const { body } = await gateway.admin<Status>('/admin/chaos')
  assert.equal(body.state, 'killed')
  assert.equal(await heldBy(gateway), 0)
  await clients[0]!.say('read')
  const { status } = await gateway.post('/admin/chaos/arm', { by: 'test', why: 'to see it refused' })
  assert.notEqual(status, 200)
  await clients[0]!.say('read')
}

test('POST /admin/chaos/kill lets go of a thousand calls at once, and blocks new effects', (t) =>
  killUnderLoad(t, async (gateway) => {
    assert.equal((await gateway.post('/admin/chaos/kill', { by: 'test', why: 'enough' })).status, 200)
  }))

test('SIGUSR2 does the same', (t) => killUnderLoad(t, (gateway) => gateway.program.signal('SIGUSR2')))
