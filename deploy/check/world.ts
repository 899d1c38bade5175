import { FlakyServer } from '../../test/e2e/support/flaky.ts'
import { stdioToolbox } from '../../test/e2e/support/toolbox.ts'
import { startGateway, type Config } from './gateway.ts'

/** What is done to the lists that the gateway asks for by itself. */
export interface ListFault {
  readonly type: string
  readonly [field: string]: unknown
}

/** Tools whose names are taken twice: what they say of themselves, schemas included, is not believed any more. */
const twins: ListFault = { type: 'registry.dup_name' }

/** Faults of every fate: some are masked by retries, some surface, and cut texts escape. */
const faultsWith = (lists: ListFault) =>
  [
    { name: 'unavailable', type: 'http.status', status: 503, rate: 0.3, match: { tool: 'read' } },
    {
      name: 'drift',
      type: 'result.drift',
      operators: 'auto',
      sync: 'both',
      rate: 0.2,
      match: { tool: 'typed' },
    },
    {
      name: 'cut',
      type: 'result.partial',
      operators: [{ op: 'truncate_text', bytes: 4, keep: 'head' }],
      declared: false,
      rate: 0.2,
      match: { tool: 'read' },
    },
    {
      name: 'slow',
      type: 'conn.latency',
      distribution: { kind: 'fixed', delay: '10ms' },
      rate: 0.3,
      match: { tool: 'read' },
    },
    { name: 'lists', rate: 1, ...lists },
  ].map(({ match, ...fault }) => ({ ...fault, match: { server: 'flaky', ...match }, ttl: '10m' }))

interface Urls {
  readonly flaky: string
  readonly steady: string
  readonly shaky: string
}

function configFor({ flaky, steady, shaky }: Urls, lists: ListFault): Config {
  return {
    gateway: { environment: 'staging' },
    mcpServers: {
      flaky: { url: flaky, trusted: true },
      steady: { url: steady, trusted: true },
      // Its incident begins when its tool begins to fail, and ends when that is over.
      shaky: { url: shaky, trusted: true, health: { every: '1s', failures: 1, tool: { name: 'read' } } },
      local: stdioToolbox(),
      gone: { url: 'http://127.0.0.1:9/mcp' },
    },
    policies: {
      // More of what one arm has less of, so that each meets all that can happen.
      sets: { bold: { retry: { maxRetries: 8, base: 1, cap: 5 }, hedge: false } },
      defaults: { attemptTimeout: { timeout: 200 }, retry: { base: 1, cap: 5 } },
      overrides: [
        {
          match: { tool: 'write' },
          rateLimit: { rate: '10/s', burst: 10, per: 'tool' },
          // In each arm one slot is left of these.
          bulkhead: { concurrent: 4, queue: 0 },
          breaker: { consecutive: 3, open: '1s' },
        },
        // Its server's word on it is not believed while its name is taken twice.
        {
          match: { tool: 'typed' },
          effect: 'read_only',
          retry: { budget: { ratio: 0, floor: 0 } },
          breaker: {},
        },
        { match: { tool: 'read' }, degrade: { static: { text: 'unknown' } } },
      ],
    },
    chaos: { enabled: true, persist: true, faults: faultsWith(lists) },
    experiments: [
      {
        name: 'policies',
        arms: { control: 'default', bold: 'bold' },
        match: { server: 'flaky' },
        assignBy: 'intent',
        // The others are in no arm.
        share: 0.8,
        minimumUnits: 10_000,
      },
    ],
    health: { webhooks: [{ type: 'json', url: 'http://127.0.0.1:9/' }] },
    telemetry: { intents: { idle: '1s' } },
  }
}

/** A gateway with faults in front of a server that fails by itself as well, and of one that does not; the tests' helpers run and end them. */
export interface World {
  readonly flaky: FlakyServer
  /** Probed once a second; no fault is aimed at it, and no agent calls it. */
  readonly shaky: FlakyServer
  /** Endpoint of the server `flaky`. */
  readonly mcp: string
  /** Endpoint of the server `steady`, which no fault is aimed at. */
  readonly steady: string
  readonly control: string
  /** Of the control plane. */
  readonly token: string
}

/** `collector`: base URL of where its spans go. */
export async function startWorld(folder: string, collector: string, lists = twins): Promise<World> {
  const [flaky, steady, shaky] = await Promise.all([
    FlakyServer.start(),
    FlakyServer.start(),
    FlakyServer.start(),
  ])
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector, OTEL_BSP_SCHEDULE_DELAY: '200' }
  const { data, control, token } = await startGateway(
    folder,
    configFor({ flaky: flaky.url, steady: steady.url, shaky: shaky.url }, lists),
    'flaky',
    { env },
  )
  return { flaky, shaky, mcp: `${data}/mcp/flaky`, steady: `${data}/mcp/steady`, control, token }
}

/** Asks the control plane to do something. */
export async function command({ control, token }: World, path: string): Promise<void> {
  const response = await fetch(control + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  })
  if (!response.ok) throw new Error(`POST ${path}: HTTP ${response.status} ${await response.text()}`)
}

const read = ({ control, token }: World, path: string) =>
  fetch(control + path, { headers: { authorization: `Bearer ${token}` } })

/** Whether a server has an incident that is open. */
export async function isIll(world: World, server: string): Promise<boolean> {
  const response = await read(world, `/admin/incidents?server=${server}&state=open`)
  return ((await response.json()) as { total: number }).total > 0
}

/** The text of its metrics. */
export const metricsOf = async (world: World): Promise<string> => (await read(world, '/metrics')).text()
