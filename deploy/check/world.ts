import { join } from 'node:path'
import { FlakyServer } from '../../test/e2e/support/flaky.ts'
import { stdioToolbox } from '../../test/e2e/support/toolbox.ts'
import { startGateway, type Config } from './gateway.ts'
import { writeHistory } from './history.ts'

/** A fault at the lists that the gateway fetches by itself. */
export interface ListFault {
  readonly type: string
  readonly [field: string]: unknown
}

/** Tools with duplicate names: the gateway no longer trusts their definitions, schemas included. */
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

function configFor({ flaky, steady, shaky }: Urls, lists: ListFault, stateDir: string): Config {
  return {
    gateway: { environment: 'staging', stateDir },
    mcpServers: {
      flaky: { url: flaky, trusted: true },
      steady: { url: steady, trusted: true },
      // An incident begins when its tool begins to fail, and ends with the failures.
      shaky: { url: shaky, trusted: true, health: { every: '1s', failures: 1, tool: { name: 'read' } } },
      local: stdioToolbox(),
      gone: { url: 'http://127.0.0.1:9/mcp' },
    },
    policies: {
      // More of some policies and less of others than the default arm, so that both arms meet every event.
      sets: { bold: { retry: { maxRetries: 8, base: 1, cap: 5 }, hedge: false } },
      defaults: { attemptTimeout: { timeout: 200 }, retry: { base: 1, cap: 5 } },
      overrides: [
        {
          match: { tool: 'write' },
          rateLimit: { rate: '10/s', burst: 10, per: 'tool' },
          // Each arm has one slot of this bulkhead.
          bulkhead: { concurrent: 4, queue: 0 },
          breaker: { consecutive: 3, open: '1s' },
        },
        // The gateway does not trust the server's annotation while the name is duplicated.
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
        // The other tasks are in no arm.
        share: 0.8,
        minimumUnits: 10_000,
      },
    ],
    health: { webhooks: [{ type: 'json', url: 'http://127.0.0.1:9/' }] },
    telemetry: { intents: { idle: '1s' } },
  }
}

/** A gateway with faults and earlier runs before a flaky and a steady server. The tests' helpers start and end both. */
export interface World {
  readonly flaky: FlakyServer
  /** Probed once a second, without faults and without agents' calls. */
  readonly shaky: FlakyServer
  /** Endpoint of the server `flaky`. */
  readonly mcp: string
  /** Endpoint of the server `steady`, which has no faults. */
  readonly steady: string
  readonly control: string
  /** Token of the control plane. */
  readonly token: string
}

/** `collector`: base URL of the receiver of its spans. */
export async function startWorld(folder: string, collector: string, lists = twins): Promise<World> {
  const [flaky, steady, shaky] = await Promise.all([
    FlakyServer.start(),
    FlakyServer.start(),
    FlakyServer.start(),
  ])
  const stateDir = join(folder, 'state')
  await writeHistory(stateDir)
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector, OTEL_BSP_SCHEDULE_DELAY: '200' }
  const { data, control, token } = await startGateway(
    folder,
    configFor({ flaky: flaky.url, steady: steady.url, shaky: shaky.url }, lists, stateDir),
    'flaky',
    { env },
  )
  return { flaky, shaky, mcp: `${data}/mcp/flaky`, steady: `${data}/mcp/steady`, control, token }
}

/** Sends a command to the control plane. */
export async function command({ control, token }: World, path: string): Promise<void> {
  const response = await fetch(control + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  })
  if (!response.ok) throw new Error(`POST ${path}: HTTP ${response.status} ${await response.text()}`)
}

const read = ({ control, token }: World, path: string) =>
  fetch(control + path, { headers: { authorization: `Bearer ${token}` } })

/** Returns an answer of the control plane. */
export const readJson = async (world: World, path: string): Promise<unknown> =>
  (await read(world, path)).json()

/** Returns true if a server has an open incident. */
export async function isIll(world: World, server: string): Promise<boolean> {
  const found = await readJson(world, `/admin/incidents?server=${server}&state=open`)
  return (found as { total: number }).total > 0
}

/** Returns the text of the gateway's metrics. */
export const metricsOf = async (world: World): Promise<string> => (await read(world, '/metrics')).text()
