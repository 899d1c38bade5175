import type { Call, Outcome, Verdict } from '../../../src/mesh/call.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { MeshEvent, Scope } from '../../../src/mesh/policy.ts'
import { breaker, type Breaker } from '../../../src/policies/breaker.ts'
import { toolCall, type CallParts } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** A reply with this verdict. */
export const answered = (verdict: Verdict = 'unchecked', value: Record<string, unknown> = {}): Outcome => ({
  kind: 'answered',
  result: { text: JSON.stringify(value), value, status: 200 },
  verdict,
})

/** A reply with a JSON-RPC error. */
export const rpcError = (code: number): Outcome => answered('rpc_error', { error: { code, message: 'no' } })

export const failed = (reason: Reason = 'upstream_status'): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, 'it went wrong', { sent: true }),
})

export const good = answered()
export const bad = failed()

/** A call under way. */
export interface Held {
  readonly call: Call
  finish(outcome: Outcome): Promise<Outcome>
}

/** A breaker over a server with scripted answers, on a manual clock. */
export function setUp(settings: object = {}, scope: Partial<Scope> = {}) {
  const clock = new ManualClock()
  const events: MeshEvent[] = []
  const context = testPolicyContext(clock, events)
  const config = breaker.schema.parse({ jitter: 0, ...settings })
  /** Resolvers of the calls that reached the server, oldest first. */
  const got: ((outcome: Outcome) => void)[] = []
  const layer = breaker.build(config, context, testScope(scope))
  const service = layer(() => new Promise((resolve) => got.push(resolve)))

  /** Sends a call. The server, if reached, answers at once. */
  function send(outcome: Outcome, replica?: number, invalidArguments = false): Promise<Outcome> {
    const call = toolCall('tool', {}, replica === undefined ? {} : { replica })
    call.record.isInvalid = invalidArguments
    const result = service(call)
    got.pop()?.(outcome)
    return result
  }

  /** Sends a call that the test answers. Undefined if the call never reached the server. */
  function hold(parts: Partial<CallParts> = {}): Held | undefined {
    const call = toolCall('tool', {}, parts)
    const result = service(call)
    const answer = got.pop()
    return (
      answer && {
        call,
        finish(outcome) {
          answer(outcome)
          return result
        },
      }
    )
  }

  async function sendAll(outcomes: readonly Outcome[]): Promise<void> {
    for (const outcome of outcomes) await send(outcome)
  }

  const breakerOf = (replica = 0) => {
    const found = context.state.list<Breaker>('breaker').find(([key]) => key.replica === replica)
    if (found === undefined) throw new Error('there is no breaker yet')
    return found[1]
  }
  const snapshot = (replica?: number) => breakerOf(replica).snapshot()
  const state = (replica?: number) => snapshot(replica).state
  return { clock, events, context, config, send, hold, sendAll, breakerOf, snapshot, state }
}

/** The same outcome n times. */
export const times = (n: number, outcome: Outcome): Outcome[] => new Array<Outcome>(n).fill(outcome)
