import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, test, type TestContext } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { armed, cleanUp, Gateway, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

const SESSIONS = 10

after(cleanUp)

interface Status {
  readonly state: string
  readonly faults: readonly { readonly concurrent: number; readonly decided: number; readonly hits: number }[]
}

interface Entry {
  readonly kind: string
  readonly seq: number
  /** In milliseconds since the Unix epoch, by the gateway's clock. */
  readonly at: number
  /** Set in entries about the engine. */
  readonly type?: string
  readonly detail?: { readonly held: number; readonly tookMs: number }
  /** Set in decisions: the fault's note, and the reason it was cut short. */
  readonly note?: object
  readonly released?: string
  /** Set in fates: the number of the decision. */
  readonly of?: number
}

/** Waits until the journal file has the fates of all calls; returns its entries. */
async function journaled(file: string, calls: number): Promise<readonly Entry[]> {
  let entries: readonly Entry[] = []
  await until('the journal has the outcome of every call', async () => {
    const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line.endsWith('}'))
    entries = lines.map((line) => (JSON.parse(line) as { record: Entry }).record)
    return entries.filter(({ kind }) => kind === 'fate').length >= calls
  })
  return entries
}

/** Waits until the replies to all calls have arrived and are held. */
async function allHeld(gateway: Gateway, server: FlakyServer, calls: number): Promise<void> {
  await until('the server has received all calls', async () => (await server.count('read')) === calls)
  await until('all replies are held', async () => {
    const { body } = await gateway.admin<{ entries: Entry[] }>(`/admin/chaos/journal?since=1&limit=${calls}`)
    return body.entries.filter(({ note }) => note !== undefined).length === calls
  })
}

async function holdingGateway({ url }: FlakyServer, journal: string, calls: number): Promise<Gateway> {
  const gateway = await Gateway.start({
    gateway: {
      environment: 'test',
      sessions: { maxInFlight: calls },
      limits: { perClient: 1 },
    },
    servers: { flaky: { url, trusted: true } },
    policies: { defaults: { bulkhead: false, retry: false, overdue: false } },
    chaos: armed(
      [
        {
          ...{ name: 'silence', type: 'rpc.late', delay: '10m', maxConcurrent: 2 * calls },
          match: { server: 'flaky', method: 'tools/call' },
        },
      ],
      { journal: { file: journal } },
    ),
  })
  await gateway.waitFor('up', 'flaky')
  return gateway
}

interface Return {
  readonly at: number
  readonly body: string
}

/** Calls a tool in a client's session, and notes when the reply began. A heavier client would measure itself. */
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

/** Lets a fault hold all calls, kills the engine, and returns the timings. */
async function killUnderLoad(
  t: TestContext,
  count: number,
  kill: (gateway: Gateway) => unknown,
): Promise<void> {
  const journal = join(await newFolder(), 'journal.jsonl')
  const server = await FlakyServer.start()
  const gateway = await holdingGateway(server, journal, count)
  const clients = await Promise.all(
    Array.from({ length: SESSIONS }, () => RawClient.open(gateway.mcp('flaky'))),
  )
  let returned = 0
  const calls = Array.from({ length: count }, (_, index) =>
    callLightly(clients[index % SESSIONS]!, index).finally(() => returned++),
  )
  await allHeld(gateway, server, count)
  assert.equal(returned, 0)
  const killedAt = performance.now()
  await kill(gateway)
  const { body: atOnce } = await gateway.admin<Status>('/admin/chaos')
  const returns = await Promise.all(calls)
  for (const { body } of returns) assert.match(body, /read by/)
  const answeredMs = Math.max(...returns.map(({ at }) => at)) - killedAt

  const entries = await journaled(journal, count)
  const killed = entries.find(({ type }) => type === 'killed')!
  const decisions = entries.filter(({ kind }) => kind === 'decision')
  const fates = entries.filter(({ kind }) => kind === 'fate')
  assert.equal(killed.detail?.held, count, 'the kill itself released all held calls')
  assert.equal(decisions.length, count)
  assert.ok(decisions.every(({ released }) => released === 'killed'))
  assert.deepEqual(
    fates.map((fate) => fate.of).sort(),
    decisions.map(({ seq }) => seq).sort(),
    'each decision has one fate',
  )
  assert.ok(
    decisions.every(({ seq }) => seq < killed.seq),
    'no fault did anything afterwards',
  )
  assert.ok(
    fates.every(({ seq }) => seq > killed.seq),
    'no call went on before all were released',
  )
  const fateMs = Math.max(...fates.map(({ at }) => at)) - killed.at
  t.diagnostic(
    `a kill lets go of ${count} calls: no fault in effect after ${killed.detail.tookMs.toFixed(1)} ms, ` +
      `the last of them over after ${fateMs} ms, its answer with its caller after ${answeredMs.toFixed(0)} ms`,
  )

  const { status } = await gateway.post('/admin/chaos/arm', { by: 'test', why: 'to see it refused' })
  assert.notEqual(status, 200)
  for (const client of clients) await client.say('read')
  const { body } = await gateway.admin<Status>('/admin/chaos')
  for (const { state, faults } of isOver(kill) ? [atOnce, body] : [body]) {
    assert.equal(state, 'killed')
    assert.deepEqual(
      faults.map(({ concurrent, decided, hits }) => [concurrent, decided, hits]),
      [[0, count, count]],
      'no call is held, and no fault was decided on later calls',
    )
  }
}

const byEndpoint = async (gateway: Gateway) =>
  assert.equal((await gateway.post('/admin/chaos/kill', { by: 'test', why: 'enough' })).status, 200)

const bySignal = (gateway: Gateway) => gateway.program.signal('SIGUSR2')

/** Whether the kill has happened on return: a signal takes time to be delivered. */
const isOver = (kill: unknown) => kill === byEndpoint

for (const count of [200, 1_000]) {
  test(`POST /admin/chaos/kill lets go of ${count} calls at once, and blocks new effects`, (t) =>
    killUnderLoad(t, count, byEndpoint))

  test(`SIGUSR2 does the same with ${count}`, (t) => killUnderLoad(t, count, bySignal))
}
