import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { Program } from '../e2e/support/program.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { startConformanceServer } from '../fixtures/conformance-server.ts'
import { startDualServer } from '../fixtures/dual-server.ts'
import { startModernExtras } from '../fixtures/modern-extras.ts'
import { startModernServer } from '../fixtures/modern-server.ts'
import { fixtureCommand } from '../support/fixture.ts'
import { until } from '../support/until.ts'

/** Interval for recurring work, longer than any run. */
const NEVER = '1d'

const quiet = { refresh: NEVER, health: false, grace: NEVER }

/** Nothing listens on port 1: listening there needs privileges. */
const NOBODY = 'http://127.0.0.1:1/mcp'

/** The strict gateway's control token; the open gateway makes its own. */
export const STRICT_TOKEN = 'a-token-for-the-recorded-exchanges'

const legacyOnly = { era: 'legacy', ...quiet }

/** Random delays are too short to notice, time-based limits are out of reach, and no call waits for a lost server. */
const policies = {
  defaults: {
    retry: {
      maxRetries: 1,
      base: '1ms',
      cap: '1ms',
      budget: { ratio: 1, floor: 1000, concurrency: 1, leastConcurrent: 100 },
    },
    breaker: { window: NEVER, minimum: 100_000, consecutive: 0, correctness: false, jitter: 0 },
    gate: false,
    overdue: false,
  },
  overrides: [
    { match: { server: 'legacy', tool: 'json_schema_2020_12_tool' }, arguments: { check: 'enforce' } },
    { match: { server: 'contract', tool: 'wait' }, deadline: { total: '1s' } },
    {
      match: { server: 'stdio', tool: 'wait' },
      attemptTimeout: { timeout: '600ms' },
      retry: { maxRetries: 0 },
    },
    { match: { server: 'stdio', tool: 'cancelled' }, rateLimit: { rate: '1/h', burst: 3 } },
    { match: { server: 'sse', tool: 'wait' }, bulkhead: { concurrent: 1, queue: 0 } },
    {
      match: { server: 'brittle' },
      breaker: { window: NEVER, consecutive: 3, minimum: 100_000, open: '1h', maxOpen: '1h', jitter: 0 },
    },
    { match: { server: 'brittle', tool: 'typed' }, verdict: { output: 'enforce' } },
    {
      match: { server: 'brittle', tool: 'read' },
      degrade: { static: { text: 'Nothing to read today.' }, notice: true },
    },
  ],
  sets: { cautious: { retry: { maxRetries: 0 } } },
}

/** Faults that depend only on the seed and the calls: no schedules, no time spans. */
const faults = [
  { name: 'refused', type: 'conn.refused', rate: 0.25, match: { tool: 'read' } },
  { name: 'status', type: 'http.status', rate: 0.25, status: 503, match: { tool: 'read' } },
  {
    name: 'scope',
    type: 'auth.scope',
    rate: 0.2,
    scope: 'files:write',
    allowWrites: true,
    match: { tool: 'write' },
  },
  { name: 'is-error', type: 'result.is_error', rate: 0.15, match: { tool: 'read' } },
  {
    name: 'rpc-error',
    type: 'rpc.error',
    rate: 0.2,
    code: -32603,
    message: 'injected',
    match: { tool: 'typed' },
  },
  { name: 'malformed', type: 'rpc.malformed', rate: 0.2, kind: 'bad_json', match: { tool: 'typed' } },
  { name: 'empty', type: 'result.empty', rate: 0.2, match: { tool: 'typed' } },
  {
    name: 'reset',
    type: 'conn.reset',
    rate: 0.3,
    at: 'headers',
    allowWrites: true,
    match: { tool: 'write' },
  },
  {
    name: 'quota',
    type: 'limit.429',
    rate: 0.2,
    retryAfter: '2h',
    allowWrites: true,
    match: { tool: 'write' },
  },
].map(({ match, ...fault }) => ({ ...fault, ttl: '1h', match: { server: 'shaky', ...match } }))

export interface Stage {
  /** Servers of every kind, generous limits, and faults at one server. */
  readonly open: Gateway
  /** A token and tight limits. */
  readonly strict: Gateway
  /** Known random values by placeholder name: addresses, as host:port, and a token. */
  readonly known: Readonly<Record<string, string>>
  stop(): Promise<void>
}

/** The servers' URLs by name, and how to stop the servers. */
interface Servers {
  readonly urls: Readonly<Record<ServerName, string>>
  readonly brittle: FlakyServer
  stop(): Promise<void>
}

type ServerName = 'legacy' | 'modern' | 'extras' | 'dual' | 'contract' | 'sse' | 'shaky' | 'brittle'

async function startServers(): Promise<Servers> {
  const own = await Promise.all([
    startConformanceServer(),
    startModernServer(),
    startModernExtras(),
    startDualServer(),
  ])
  const [legacy, modern, extras, dual] = own
  const stop = async () => {
    await cleanUp()
    await Promise.all(own.map((server) => server.close()))
  }
  try {
    const [contract, sse, shaky, brittle] = await Promise.all([
      contractServer('http'),
      contractServer('sse'),
      FlakyServer.start(),
      FlakyServer.start(),
    ])
    const servers = { legacy, modern, extras, dual, shaky, brittle }
    const urls = Object.fromEntries(Object.entries(servers).map(([name, { url }]) => [name, url]))
    return { urls: { ...urls, contract, sse } as Servers['urls'], brittle, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Starts the contract server in a process that ends with all others; returns its URL. */
function contractServer(transport: 'http' | 'sse'): Promise<string> {
  const program = new Program(fixtureCommand('contract', transport).args)
  return program.line('the contract server listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
}

export async function startStage(): Promise<Stage> {
  const servers = await startServers()
  try {
    return await startGateways(servers)
  } catch (error) {
    await servers.stop()
    throw error
  }
}

async function startGateways({ urls, brittle, stop }: Servers): Promise<Stage> {
  const local = { ...fixtureCommand('contract', 'stdio'), ...legacyOnly }
  const entries: Json = {
    legacy: { url: urls.legacy, ...legacyOnly },
    contract: { url: urls.contract, ...legacyOnly, tools: { exclude: ['refuse'] } },
    modern: { url: urls.modern, era: 'modern', ...quiet },
    extras: { url: urls.extras, era: 'modern', ...quiet },
    dual: { url: urls.dual, era: 'auto', ...quiet },
    stdio: { ...local, tools: { exclude: ['pid'] } },
    sse: { type: 'sse', url: urls.sse, ...legacyOnly },
    raw: { ...fixtureCommand('raw', 'stdio'), ...legacyOnly, maxReply: '64KiB' },
    shaky: { url: urls.shaky, ...legacyOnly, trusted: true, deliver: 'tool_result' },
    brittle: { url: urls.brittle, ...legacyOnly, trusted: true },
    down: { url: NOBODY, ...legacyOnly },
    off: { url: NOBODY, disabled: true },
  }
  const opening = Gateway.start({
    servers: entries,
    gateway: {
      environment: 'staging',
      allowedOrigins: ['https://app.example.com'],
      maxBody: '64KiB',
      listTimeout: '1m',
      sessions: { idle: NEVER, unused: NEVER },
    },
    policies,
    chaos: { enabled: true, seed: 42, persist: false, faults },
    telemetry: { intents: { idle: '1h' } },
  })
  const tightening = Gateway.start({
    servers: {
      one: { ...local, sharing: 'per_session' },
      plain: { url: urls.shaky, passthrough: true, ...quiet, era: 'legacy' },
    },
    gateway: {
      controlToken: STRICT_TOKEN,
      maxBody: '2KiB',
      ready: 'all',
      sessions: { max: 4, idle: NEVER, unused: NEVER },
      limits: { perSession: { rate: '1/h', burst: 20 } },
    },
    policies: { sets: { cautious: { retry: { maxRetries: 0 } } } },
  })
  const [open, strict] = await Promise.all([opening, tightening])
  const up = Object.keys(entries).filter((name) => !['down', 'off', 'raw'].includes(name))
  await open.waitFor('up', ...up)
  await open.waitFor('down', 'down')
  await strict.waitFor('up', 'one', 'plain')
  await compileSchemas(open)
  await brittle.behave({ write: { failing: 1 }, typed: { invalid: 1 }, read: { failing: 1, status: 500 } })
  return {
    open,
    strict,
    known: {
      'the control token': open.token,
      'address of the data plane': hostOf(open.data),
      'address of the control plane': hostOf(open.control),
      'address of the strict data plane': hostOf(strict.data),
      'address of the strict control plane': hostOf(strict.control),
      ...Object.fromEntries(Object.entries(urls).map(([name, url]) => [`address of ${name}`, hostOf(url)])),
    },
    stop,
  }
}

/** A schema is compiled after the first call with a result to check; only later results are checked. */
async function compileSchemas(gateway: Gateway): Promise<void> {
  const client = await RawClient.open(gateway.mcp())
  await client.call('legacy__json_schema_2020_12_tool', { name: 'n' })
  for (const server of ['shaky', 'brittle']) await client.call(`${server}__typed`)
  for (const tool of ['array', 'number']) await client.call(`extras__${tool}`)
  await until(
    'all schemas are compiled',
    async () => (await gateway.metric('breakwater_schemas', 'state="waiting"')) === 0,
  )
  await client.leave()
}

const hostOf = (url: string) => new URL(url).host
