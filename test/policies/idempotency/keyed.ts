import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError, type Reason } from '../../../src/mesh/errors.ts'
import type { Effect, PolicyContext } from '../../../src/mesh/policy.ts'
import { idempotency } from '../../../src/policies/idempotency.ts'
import type { Runs } from '../../../src/policies/idempotency/runs.ts'
import { type CallParts, toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** A server whose calls a test ends singly, in the order of arrival. */
export class HeldServer {
  readonly calls: Call[] = []
  readonly #ends: ((outcome: Outcome) => void)[] = []

  readonly service: Service = (call) => {
    this.calls.push(call)
    call.record.sent = true
    return new Promise((resolve) => {
      this.#ends.push(resolve)
      call.signal.addEventListener('abort', () => {
        resolve({ kind: 'failed', error: call.signal.reason as ReturnType<typeof gatewayError> })
      })
    })
  }

  /** Answers the n-th call, from 0; `more` holds members of its result. */
  answer(n: number, more: object = {}): void {
    this.end(n, answerTo(this.calls[n]!, { n, ...more }))
  }

  fail(n: number, reason: Reason, sent: boolean): void {
    this.end(n, { kind: 'failed', error: gatewayError(reason, 'it broke', { sent }) })
  }

  end(n: number, outcome: Outcome): void {
    this.#ends[n]!(outcome)
  }
}

/** Returns a result as a server writes results. */
export function answerTo({ id }: Call, result: object): Outcome & { kind: 'answered' } {
  const text = `{ "result": ${JSON.stringify(result)}, "id": ${JSON.stringify(id)}, "jsonrpc": "2.0" }`
  const value = JSON.parse(text) as Call['message']['value']
  return { kind: 'answered', result: { text, value, status: 200 }, verdict: 'unchecked' }
}

interface Options {
  readonly settings?: object
  readonly effect?: Effect
  readonly context?: PolicyContext
  readonly tool?: string
  readonly server?: string
  readonly set?: string
}

export function setUp({ settings = {}, effect = 'write', ...more }: Options = {}) {
  const clock = (more.context?.clock ?? new ManualClock()) as ManualClock
  const context = more.context ?? testPolicyContext(clock)
  const server = new HeldServer()
  const { tool = 'tool', server: name = 'test', set = 'default' } = more
  const scope = testScope({ effect, set, tool, server: name })
  const service = idempotency.build(idempotency.schema.parse(settings), context, scope)(server.service)
  /** Sends a call. Its outcome is in `outcome` as soon as the call ends. */
  const send = (call: Call) => {
    const sent: { call: Call; outcome?: Outcome } = { call }
    void service(call).then((outcome) => (sent.outcome = outcome))
    return sent
  }
  const snapshot = () => context.state.list<Runs>('idempotency')[0]![1].snapshot()
  return { clock, context, server, service, send, snapshot }
}

interface Keyed extends Partial<CallParts> {
  readonly args?: Readonly<Record<string, unknown>>
  readonly headers?: Call['headers']
  readonly tool?: string
}

export function keyed(key: unknown, { args = {}, headers, tool = 'tool', ...parts }: Keyed = {}): Call {
  const params = { name: tool, arguments: args, _meta: { 'dev.breakwater/idempotency-key': key } }
  return { ...toolCall(tool, {}, { params, ...parts }), headers }
}

/** A call with a key and a caller that can give up. */
export function leaving(key: string, parts: Keyed = {}) {
  const signal = new Cancellation()
  const leave = (reason: Reason = 'cancelled') => signal.abort(gatewayError(reason, 'gave up'))
  return { call: keyed(key, { ...parts, signal }), leave }
}

/** Returns the id and the result of a reply; undefined without a reply. */
export function read({ outcome }: { readonly outcome?: Outcome }) {
  if (outcome?.kind !== 'answered') return undefined
  const { text, value } = outcome.result
  const parsed = JSON.parse(text) as { id: unknown; result: unknown }
  return { id: parsed.id, result: parsed.result, valueId: value.id }
}

export function errorOf({ outcome }: { readonly outcome?: Outcome }) {
  return outcome === undefined || outcome.kind === 'answered' ? undefined : outcome.error
}
