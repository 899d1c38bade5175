import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import { counter, gauge } from '../mesh/metric-spec.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'
import { Gate, gateWait, serverLost, states } from './gate/state-machine.ts'

const schema = z
  .strictObject({
    patience: duration({ min: 0 })
      .default(20_000)
      .describe(
        'How long a call waits for a lost server; 0: not at all. If the server has recently taken longer to return, one and a half times as long as its outage, up to `maxPatience`.',
      ),
    maxPatience: duration({ min: 0 })
      .default(45_000)
      .describe('Longest patience with a server whose restarts take long.'),
    giveUp: duration({ min: 0 })
      .default(120_000)
      .describe(
        'Once a server has been lost this long, no call waits any more: each tries once, and fails at once.',
      ),
    queue: z
      .int()
      .min(0)
      .max(100_000)
      .default(1_024)
      .describe('How many calls may wait for one server. One tenant gets half of the places at most.'),
    maxWaiting: size()
      .default(64 * 1024 ** 2)
      .describe('The maximum total size of the requests waiting for one server, in bytes.'),
  })
  .refine(({ patience, maxPatience }) => patience <= maxPatience, {
    path: ['maxPatience'],
    error: '`maxPatience` must be at least `patience`',
  })
  .describe('Holds calls back while their server is lost, and releases them gradually when it is back.')

type GateConfig = z.output<typeof schema>

const GATE = 'gate'

/**
 * Holds calls back for a lost server: only for failed or broken connections. Each server has a gate, shared by its
 * tools. Waiting for an unavailable endpoint is gRPC's wait-for-ready and Linkerd's failfast timeout; here the
 * gateway's own probes end the wait. The gate first releases calls one by one, so a freshly started server is not
 * flooded.
 */
export const gate: Policy<GateConfig> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: agents would rather wait a second than repeat a task. Shorten `patience` where agents have other servers for the same work; `patience: 0` only spares a lost server the retries.',
  reasons: [serverLost],
  facts: [gateWait],
  events: {
    gate: {
      about: 'A server was lost, or is back.',
      counter: counter(
        'gate_transitions_total',
        "State changes of servers' gates, by new state.",
        ['server', 'state', 'arm'],
        'servers × 3 states × arms',
      ),
      labels: ({ state }) => ({ state: String(state) }),
      isWarning: ({ state }) => state === 'open',
    },
  },
  states: [
    {
      kind: GATE,
      shownAt: 'breakers',
      learned: (gate: Gate) => ({ patience: gate.snapshot().patience }),
      gauge: {
        metric: gauge(
          'gate_state',
          "1 for the state of a server's gate: closed (calls pass), open (server lost, calls wait) or half_open (server back, calls released one by one).",
          ['server', 'state', 'arm'],
          'servers × 3 states × arms',
        ),
        samples(gate: Gate) {
          return states.map((state) => ({ labels: { state }, value: gate.state === state ? 1 : 0 }))
        },
      },
    },
    {
      kind: GATE,
      gauge: {
        metric: gauge(
          'gate_waiting',
          'Calls that wait for a lost server.',
          ['server', 'arm'],
          'servers × arms',
        ),
        samples: (gate: Gate) => [{ labels: {}, value: gate.waiting }],
      },
    },
  ],
  build(config, context, scope): Layer {
    const { set, server } = scope
    // A change of endpoints starts a new gate.
    const key = { kind: GATE, set, server, config: { ...config, endpoints: scope.endpoints } }
    const gate = context.state.get(key, () => new Gate(config, context, scope))
    return (next) => (call) => gate.run(call, next, scope)
  },
}
