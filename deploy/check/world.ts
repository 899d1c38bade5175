import { FlakyServer } from '../../test/e2e/support/flaky.ts'
import { stdioToolbox } from '../../test/e2e/support/toolbox.ts'
import { startGateway, type Config } from './gateway.ts'

/** Faults of every fate: some are masked by retries, some surface, and cut texts escape. */
const faults = [
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
    rate: 0.2,
    match: { tool: 'read' },
  },
  // The gateway asks for lists by itself.
  { name: 'lists', type: 'registry.dup_name', rate: 1, match: { server: 'flaky' } },
].map((fault) => ({ ...fault, ttl: '10m' }))

function configFor(url: string): Config {
  return {
    gateway: { environment: 'staging' },
    mcpServers: {
      flaky: { url, trusted: true },
      local: stdioToolbox(),
      gone: { url: 'http://127.0.0.1:9/mcp' },
    },
    policies: {
      // More of what one arm has less of, so that each meets all that can happen.
      sets: { bold: { retry: { attempts: 4, base: 1, cap: 5 }, hedge: false } },
      defaults: { attemptTimeout: { timeout: 200 }, retry: { base: 1, cap: 5 } },
      overrides: [
        {
          match: { tool: 'write' },
          rateLimit: { rate: '10/s', burst: 10, per: 'tool' },
          // In each arm one slot is left of these.
          bulkhead: { concurrent: 4, queue: 0 },
          breaker: { consecutive: 3, open: '1s' },
        },
        { match: { tool: 'typed' }, retry: { budget: { ratio: 0, floor: 0 } } },
        { match: { tool: 'read' }, degrade: { static: { text: 'unknown' } } },
      ],
    },
    chaos: { enabled: true, persist: true, faults },
    experiments: [
      {
        name: 'policies',
        arms: { control: 'default', bold: 'bold' },
        match: { server: 'flaky' },
        assignBy: 'intent',
        // The others are in no arm.
        share: 0.8,
        minimum: 1_000_000,
      },
    ],
    telemetry: { intents: { idle: '1s' } },
  }
}

/** A gateway with faults in front of a server that fails by itself as well; the tests' helpers run and end them. */
export interface World {
  readonly flaky: FlakyServer
  /** Endpoint of the server `flaky`. */
  readonly mcp: string
  readonly control: string
  /** Of the control plane. */
  readonly token: string
}

/** `collector`: base URL of where its spans go. */
export async function startWorld(folder: string, collector: string): Promise<World> {
  const flaky = await FlakyServer.start()
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector, OTEL_BSP_SCHEDULE_DELAY: '200' }
  const { data, control, token } = await startGateway(folder, configFor(flaky.url), 'flaky', { env })
  return { flaky, mcp: `${data}/mcp/flaky`, control, token }
}

/** Asks the control plane to do something. */
export async function command({ control, token }: World, path: string): Promise<void> {
  const response = await fetch(control + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  })
  if (!response.ok) throw new Error(`POST ${path}: HTTP ${response.status} ${await response.text()}`)
}
