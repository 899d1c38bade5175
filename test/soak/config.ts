import type { GatewayParts, Json } from '../e2e/support/gateway.ts'
import type { Fleet } from './fleet.ts'

/** Armed anew by each reload, and so long enough. */
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

/** The faults of the run. `turn`: counts reloads; the rates change with it. */
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
 * The config of the run after so many reloads: it adds a server and takes it away, starts another anew, changes settings of a third
 * and faults, and leaves policies alone, for a change of those would end the experiment. What is remembered is remembered for a short time, so that memory is level
 * early.
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
