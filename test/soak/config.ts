import type { GatewayParts, Json } from '../e2e/support/gateway.ts'
import type { Fleet } from './fleet.ts'

/** Each reload arms the faults again, so this lasts long enough. */
const TTL = '5m'

const fault = (name: string, type: string, server: string, rate: number, more: Json = {}): Json => ({
  name,
  type,
  rate,
  ttl: TTL,
  match: { server, method: 'tools/call' },
  allowWrites: true,
  ...more,
})

/** Returns the run's faults. `turn` counts reloads; the rates change with it. */
function plan(turn: number): Json[] {
  const factor = turn % 2 === 0 ? 1 : 2
  return [
    fault('late', 'conn.latency', '*', 0.02 * factor, { distribution: { kind: 'uniform', max: '100ms' } }),
    fault('reset-old', 'conn.reset', 'old', 0.01 * factor),
    fault('reset-new', 'conn.reset', 'new', 0.01 * factor),
    fault('unavailable', 'http.status', 'pool', 0.02, { status: 503 }),
    fault('refused', 'conn.refused', 'old', 0.02),
    fault('forgotten', 'session.lost', 'old', 0.01),
    fault('cut', 'sse.cut', 'new', 0.02, { match: { server: 'new', tool: 'report' } }),
    fault('killed', 'proc.kill', 'local', 0.002, { signal: 'KILL' }),
  ]
}

/**
 * Returns the run's config after `turn` reloads. Each reload adds or removes a server, restarts another, and changes
 * the settings of a third and the faults. Policies never change, because a change would end the experiment. Memories
 * are short, so memory levels off early.
 */
export function configOf(fleet: Fleet, turn: number): GatewayParts {
  return {
    servers: fleet.entries(turn),
    gateway: { environment: 'test', sessions: { unused: '10s', idle: '10s' } },
    policies: {
      defaults: {
        deadline: { total: '10s' },
        attemptTimeout: { timeout: '3s' },
        idempotency: { window: '10s', limit: '20s' },
      },
      sets: { patient: { retry: { maxRetries: 4 } } },
    },
    chaos: { enabled: true, persist: true, seed: turn, faults: plan(turn) },
    experiments: [
      {
        name: 'soak',
        arms: { control: 'default', treatment: 'patient' },
        match: { server: 'old' },
        assignBy: 'session',
        minimumUnits: 1_000_000,
        maxDuration: '30d',
      },
    ],
    telemetry: { accessLog: { sample: 1 }, intents: { idle: '1s', remember: '1s' } },
  }
}
