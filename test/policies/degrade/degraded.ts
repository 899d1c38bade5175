import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { Kit, Scope } from '../../../src/mesh/policy.ts'
import { degrade } from '../../../src/policies/degrade.ts'
import { testKit, testScope } from '../../support/kit.ts'
import type { ManualClock } from '../../support/manual-clock.ts'

/** A result as a server writes it. */
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
  error: gatewayError('breaker_open', 'breaker open'),
  by: 'breaker',
}

interface Options {
  /** What becomes of a call of the tool itself, in place of `rejected`. */
  readonly script?: (call: Call) => Outcome | Promise<Outcome>
  readonly scope?: Parameters<typeof testScope>[0]
  readonly kit?: Kit
}

/** The policy with these settings, over a tool that a test plays; `script` may be changed on the way. */
export function setUp(settings: object, { script = () => rejected, scope, kit = testKit() }: Options = {}) {
  const clock = kit.clock as ManualClock
  const play = { script }
  const inner: Service = (call) => Promise.resolve(play.script(call))
  const layer = degrade.build(degrade.schema.parse(settings), kit, testScope(scope))
  return { clock, kit, play, service: layer(inner) }
}

/** A way to other tools which a test plays, and what came there. */
export function otherTools(tools: Readonly<Record<string, Service>>) {
  const calls: Call[] = []
  const detour: Scope['detour'] = (call, server, tool) => {
    const service = tools[`${server}/${tool}`]
    if (service === undefined) return undefined
    const observed: Service = (other) => {
      calls.push(other)
      return service(other)
    }
    return { call: { ...call, server, tool }, service: observed }
  }
  return { calls, detour }
}

/** What came back: its id and result, and how it is flagged. */
export function read(outcome: Outcome) {
  if (outcome.kind !== 'answered') return { error: outcome.error.reason }
  const { id, result } = JSON.parse(outcome.result.text) as { id: unknown; result: unknown }
  return { id, result, valueId: outcome.result.value.id, partial: outcome.partial }
}
