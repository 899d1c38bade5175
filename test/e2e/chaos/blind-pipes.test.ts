import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { LATE_MS, printers, spoilers } from '../../fixtures/spoiling-server.ts'
import { until } from '../../support/until.ts'
import { armed, cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { attemptsAt, callerAt, fatesOf, kinds } from './alike.ts'

/*
 * Like blind.test.ts, for transports whose answers share one stream. `real` really spoils its answers; faults do the
 * same to the answers of `fake`. Three things have to be equal: the agent's reply, the counted attempts, and the
 * gateway's log about the server, including excerpts of skipped lines and discarded answers.
 *
 * Names and ids chosen by the test may differ, and times.
 */

const script = fileURLToPath(new URL('../../fixtures/spoiling-server.js', import.meta.url))

/** The fault with the same effect as each tool. */
const faultFor: Readonly<Record<string, Json & { readonly type: string }>> = {
  truncated: { type: 'rpc.malformed' },
  bad_json: { type: 'rpc.malformed', kind: 'bad_json' },
  wrong_id: { type: 'rpc.wrong_id' },
  duplicate: { type: 'rpc.duplicate' },
  late: { type: 'rpc.late', delay: LATE_MS },
  log: { type: 'stdout.pollution', lines: 2 },
  json: { type: 'stdout.pollution', kind: 'json' },
  banner: { type: 'stdout.pollution', kind: 'banner' },
  bytes: { type: 'stdout.pollution', kind: 'bytes' },
  half: { type: 'stdout.pollution', kind: 'half' },
  error: { type: 'rpc.error', message: 'out of order' },
  silent: { type: 'conn.half_open' },
  latent: { type: 'conn.latency', distribution: { kind: 'fixed', delay: '60s' } },
}

/** Outcomes of tools whose answers are errors, or unreadable but with a readable id; other tools time out. */
const outcomes: Readonly<Record<string, string>> = {
  truncated: 'transport_error',
  bad_json: 'transport_error',
  error: 'rpc_error',
}

/** Tools that still give an answer. */
const harmless: ReadonlySet<string> = new Set(['duplicate', 'log', 'json', 'banner', 'bytes'])

/** Tools whose answers are discarded, with a log line each. */
const discarded: ReadonlySet<string> = new Set(['wrong_id', 'duplicate', 'late'])

interface Lane {
  readonly name: string
  readonly transport: 'stdio' | 'sse'
  readonly era: 'legacy' | 'modern'
  readonly tools: readonly string[]
}

const everywhere = Object.keys(spoilers)
const lanes: readonly Lane[] = [
  {
    name: 'stdio_legacy',
    transport: 'stdio',
    era: 'legacy',
    tools: [...everywhere, ...Object.keys(printers)],
  },
  {
    name: 'stdio_modern',
    transport: 'stdio',
    era: 'modern',
    tools: ['truncated', 'wrong_id', 'duplicate', 'late', 'log', 'bytes', 'half'],
  },
  { name: 'sse', transport: 'sse', era: 'legacy', tools: everywhere },
]

async function entryOf({ transport, era }: Lane, kind: (typeof kinds)[number]): Promise<Json> {
  const args = [script, transport, era, kind === 'real' ? 'bad' : 'good']
  if (transport === 'stdio')
    return { command: process.execPath, args, era, sharing: 'per_session', trusted: true }
  const program = new Program(args)
  const url = await program.line('the server listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
  return { type: 'sse', url, trusted: true }
}

let gateway: Gateway

before(async () => {
  const servers: Record<string, Json> = {}
  const faults: Json[] = []
  for (const lane of lanes) {
    for (const kind of kinds) servers[`${kind}_${lane.name}`] = await entryOf(lane, kind)
    for (const tool of lane.tools)
      faults.push({
        name: `${tool}.${lane.name}`,
        match: { server: `fake_${lane.name}`, tool },
        ...faultFor[tool],
      })
  }
  gateway = await Gateway.start(
    {
      gateway: { environment: 'test' },
      servers,
      policies: {
        defaults: { retry: false, breaker: false },
        // A tool that answers may take its time: on a busy machine each of these processes stalls now and then.
        overrides: Object.keys(faultFor)
          .filter((tool) => !harmless.has(tool))
          .map((tool) => ({ match: { tool }, attemptTimeout: { timeout: 200 } })),
      },
      chaos: armed(faults),
    },
    { args: ['--log-level', 'debug'] },
  )
  await gateway.waitFor('up', ...Object.keys(servers))
})
after(cleanUp)

/** Logged once a minute, for real and injected noise together. */
const NOISE = 'skipped output that is not JSON-RPC'

/** Returns the log about a server without its calls; values specific to a run are replaced. */
function saidOf(server: string): string[] {
  return gateway.log
    .filter(({ server: of, msg }) => of === server && msg !== NOISE)
    .filter((record) => !('outcome' in record) && !('method' in record))
    .map(({ time: _, server: __, ...record }) =>
      JSON.stringify(record)
        .replaceAll(/\\"id\\":\d+/g, '\\"id\\":N')
        .replaceAll(/"id":("[^"]*"|\d+)/g, '"id":N'),
    )
}

interface Seen {
  readonly reply: unknown
  readonly attempts: Record<string, number>
  readonly log: string[]
}

async function play(lane: Lane, kind: (typeof kinds)[number], tool: string): Promise<Seen> {
  const server = `${kind}_${lane.name}`
  const call = await callerAt(lane.era, gateway.mcp(server))
  await call('fine')
  const known = saidOf(server).length
  const reply = await call(tool)
  // An orphan is discarded after its call, so everything the tool sent has been read once a later answer has been read.
  if (tool === 'late')
    await until('the late answer has come', () =>
      saidOf(server)
        .slice(known)
        .some((line) => line.includes('without a waiting call')),
    )
  await call('fine')
  await until('the log is written', () => said(server, known).length >= expected(tool))
  return { reply, attempts: await attemptsAt(gateway, server, tool), log: said(server, known) }
}

const said = (server: string, known: number) => saidOf(server).slice(known)

function expected(tool: string): number {
  return discarded.has(tool) ? 1 : 0
}

for (const lane of lanes) {
  for (const tool of lane.tools) {
    const { type } = faultFor[tool] as { type: string }
    test(`${type} (${tool}), ${lane.name}: agent, counts and log see a real failure and an injected one alike`, async () => {
      const [real, fake] = await Promise.all(kinds.map((kind) => play(lane, kind, tool)))
      assert.deepEqual(fake, real)
      assert.equal(JSON.stringify(real?.reply).includes('fine'), harmless.has(tool), JSON.stringify(real))
      const outcome = harmless.has(tool) ? 'returned' : (outcomes[tool] ?? 'timeout')
      assert.deepEqual(real?.attempts, { [outcome]: 1 })
      const fate = harmless.has(tool) ? 'masked' : 'surfaced'
      assert.deepEqual(await fatesOf(gateway, `${tool}.${lane.name}`), { [fate]: 1 })
    })
  }
}

test('no fault had an internal error', async () => {
  assert.equal(await gateway.metric('breakwater_chaos_engine_errors_total'), 0)
})
