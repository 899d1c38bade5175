import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { PolicyContext, Scope } from '../../../src/mesh/policy.ts'
import { degrade } from '../../../src/policies/degrade.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import type { ManualClock } from '../../support/manual-clock.ts'
import { breakerOpen } from '../../../src/policies/breaker/state-machine.ts'

/** Returns a result as a server writes results. */
export function answer({ id }: Call, result: object = {}, verdict = 'unchecked' as const): Outcome {
  const text = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result)}}`
  const value = JSON.parse(text) as Call['message']['value']
  return { kind: 'answered', result: { text, value, status: 200 }, verdict }
}

export function rpcError({ id }: Call, code: number, message: string): Outcome {
  const value = { jsonrpc: '2.0', id, error: { code, message } }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 200 },
    verdict: 'rpc_error',
  }
}

export const failed = (reason: Reason, message = 'it broke'): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, message, { sent: true }),
})

export const rejected: Outcome = {
  kind: 'rejected',
  error: gatewayError(breakerOpen, 'breaker open'),
  by: 'breaker',
}

interface Options {
  /** The tool's own outcome of a call, instead of `rejected`. */
  readonly script?: (call: Call) => Outcome | Promise<Outcome>
  readonly scope?: Parameters<typeof testScope>[0]
  readonly context?: PolicyContext
}

/** The policy with these settings over a scripted tool; tests may change `script` later. */
export function setUp(
  settings: object,
  { script = () => rejected, scope, context = testPolicyContext() }: Options = {},
) {
  const clock = context.clock as ManualClock
  const play = { script }
  const inner: Service = (call) => Promise.resolve(play.script(call))
  const layer = degrade.build(degrade.schema.parse(settings), context, testScope(scope))
  return { clock, context, play, service: layer(inner) }
}

/** A route to other scripted tools, and the calls that arrived there. */
export function otherTools(tools: Readonly<Record<string, Service>>) {
  const calls: Call[] = []
  const fallbackCall: Scope['fallbackCall'] = (call, server, tool) => {
    const service = tools[`${server}/${tool}`]
    if (service === undefined) return undefined
    const observed: Service = (other) => {
      calls.push(other)
      return service(other)
    }
    return { call: { ...call, server, tool }, service: observed }
  }
  return { calls, fallbackCall }
}

/** Returns the id, the result and the flags of a reply. */
export function read(outcome: Outcome) {
  if (outcome.kind !== 'answered') return { error: outcome.error.reason }
  const { id, result } = JSON.parse(outcome.result.text) as { id: unknown; result: unknown }
  return { id, result, valueId: outcome.result.value.id, partial: outcome.partial }
}
