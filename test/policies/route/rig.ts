import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError, type GatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { MeshEvent, Scope } from '../../../src/mesh/policy.ts'
import { route } from '../../../src/policies/route.ts'
import type { ReplicaLoad } from '../../../src/policies/route/load.ts'
import { type CallParts, toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { breakerOpen } from '../../../src/policies/breaker/state-machine.ts'

export const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

export const failure = (reason: Reason = 'upstream_status'): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, 'scripted', { sent: true }),
})

export const open: Outcome = {
  kind: 'rejected',
  error: gatewayError(breakerOpen, 'scripted'),
  by: 'breaker',
}

/** The behaviour of a replica: ends calls after `ms` with `outcome`. */
export interface Behaviour {
  ms: number
  outcome: Outcome
}

/** The policy before scripted replicas. */
export function setUp(behaviours: Behaviour[], settings: object = {}, scopeParts: Partial<Scope> = {}) {
  const clock = new ManualClock()
  const events: MeshEvent[] = []
  const context = testPolicyContext(clock, events)
  const scope = testScope({ replicas: behaviours.length, ...scopeParts })
  const sent: Call[] = []
  const upstream: Service = (call) => {
    sent.push(call)
    const { ms, outcome } = behaviours[call.replica ?? 0] as Behaviour
    if (outcome.kind !== 'rejected') call.record.sent = true
    return clock.sleep(ms, call.signal).then(
      () => outcome,
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }
  const service = route.build(route.schema.parse(settings), context, scope)(upstream)

  /** Sends a call now. */
  function send(parts: Partial<CallParts> = {}): { call: Call; done: Promise<Outcome> } {
    const call = toolCall('tool', {}, { startedAt: clock.now(), ...parts })
    return { call, done: service(call) }
  }

  async function run(parts: Partial<CallParts> = {}): Promise<Outcome> {
    const outcomes: Outcome[] = []
    void send(parts).done.then((outcome) => outcomes.push(outcome))
    for (;;) {
      await clock.advance(0)
      if (outcomes[0] !== undefined) return outcomes[0]
      await clock.advance(1)
    }
  }

  /** Sends a call every `everyMs` for `forMs`, however long they take. */
  async function stream(forMs: number, everyMs: number, parts: () => Partial<CallParts> = () => ({})) {
    for (let ms = 0; ms < forMs; ms += everyMs) {
      void send(parts())
      await clock.advance(everyMs)
    }
  }

  /** Returns how many calls since the `from`th went to each replica. */
  const counts = (from = 0) =>
    behaviours.map((_, index) => sent.slice(from).filter(({ replica }) => (replica ?? 0) === index).length)

  const loads = () => context.state.list<ReplicaLoad>('load').map(([, load]) => load)
  return { clock, context, scope, events, sent, service, send, run, stream, counts, loads }
}

export const up = (ms = 10): Behaviour => ({ ms, outcome: answer })
export const down = (ms = 10): Behaviour => ({ ms, outcome: failure() })
