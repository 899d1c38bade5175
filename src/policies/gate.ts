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
        'How long a call waits for a server that is lost; 0: not at all. For a server that has taken longer to come back lately it is half as long again, up to `maxPatience`.',
      ),
    maxPatience: duration({ min: 0 })
      .default(45_000)
      .describe('Longest patience with a server whose restarts take long.'),
    giveUp: duration({ min: 0 })
      .default(120_000)
      .describe(
        'Once a server has been lost for so long, no call waits for it any more: each tries once, and fails at once.',
      ),
    queue: z
      .int()
      .min(0)
      .max(100_000)
      .default(1_024)
      .describe('How many calls may wait for one server. One tenant gets half of the places at most.'),
    maxWaiting: size()
      .default(64 * 1024 ** 2)
      .describe('How large the requests that wait for one server may be together, in bytes.'),
  })
  .refine(({ patience, maxPatience }) => patience <= maxPatience, {
    path: ['maxPatience'],
    error: '`maxPatience` must be at least `patience`',
  })
  .describe('Holds calls back while their server is lost, and lets them go gradually when it is back.')

type GateConfig = z.output<typeof schema>

/** The kind of state of gates. */
const GATE = 'gate'

/**
 * Holds back what would find a server lost: a connection that cannot be made or that breaks, and nothing else. One gate per server, shared
 * by its tools. Waiting for an endpoint that is known to be away is gRPC's wait-for-ready and Linkerd's failfast timeout; here it
 * ends by the gateway's own probes, and calls are released one by one at first, so that a server that is just up is not flooded.
 */
export const gate: Policy<GateConfig> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: agents wait a second more gladly than they repeat a task. Shorten `patience` where agents have other servers for the same work; `patience: 0` only spares a lost server the retries.',
  reasons: [serverLost],
  facts: [gateWait],
  events: {
    gate: {
      about: 'A server was lost, or is back.',
      counter: counter(
        'gate_transitions_total',
        'Changes of state of the gates of servers, by the state that was entered.',
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
          '1 for the state of the gate of a server: closed (calls pass), open (the server is lost, and calls wait) or half_open (it is back, and calls are released one by one).',
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
    // One of other endpoints knows nothing of these.
    const key = { kind: GATE, set, server, config: { ...config, endpoints: scope.endpoints } }
    const gate = context.state.get(key, () => new Gate(config, context, scope))
    return (next) => (call) => gate.run(call, next, scope)
  },
}
