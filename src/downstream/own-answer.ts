import {
  type Call,
  type Caller,
  type Channel,
  type Message,
  newRecord,
  type Outcome,
  type RequestId,
  type Service,
} from '../mesh/call.ts'
import { verdictOf } from '../mesh/classify.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { parseExactly } from '../protocol/json-parse.ts'
import { resultText } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { ownCall } from '../upstreams/own-call.ts'
import type { InboundRequest } from './endpoint.ts'
import { putOnWire, sendJson } from './http/post-reply.ts'
import { respond } from './respond.ts'
import { ShapedReply } from '../wire/shaped-reply.ts'
import type { Tenancy } from '../access/caller.ts'
import type { HttpReply } from '../wire/http-reply.ts'

/** The method for opening an event stream; the GET of the legacy era counts as the same. */
export const LISTEN = 'subscriptions/listen'

/** A request answered by the gateway itself, with its caller and tenant. */
export interface OwnRequest {
  readonly incoming: Pick<InboundRequest, 'endpoint' | 'headers'>
  readonly id: RequestId
  readonly message: Message
  readonly caller: Caller
  readonly tenancy: Tenancy
  readonly now: Millis
}

/**
 * Returns the outcome of `service` for a request that the gateway answers itself. Applies the same client-side faults
 * as to a request for a server. For faults, the endpoint for all servers is a server without a name. `more.signal` must
 * abort when no client waits for the answer any more.
 */
export function answerOwn(
  { clientFaults }: GatewayGeneration,
  { incoming, id, message, caller, tenancy, now }: OwnRequest,
  service: Service,
  more: Pick<Call, 'signal'> & Partial<Pick<Call, 'channel'>>,
): Promise<Outcome> {
  const server = incoming.endpoint.server ?? ''
  const method = message.value.method as string
  const call: Call = {
    ...ownCall(server, method, {}, more.signal),
    ...tenancy,
    id,
    message,
    inbound: incoming.headers,
    caller,
    ...more,
    record: newRecord(now),
  }
  return (clientFaults(server, method)?.(service) ?? service)(call)
}

/** Returns an outcome with the gateway's own result, given as JSON. */
export function ownResult(id: RequestId, json: string): Outcome {
  const text = resultText(id, json)
  const value = parseExactly(text) as Message['value']
  return { kind: 'answered', result: { text, value, status: 200 }, verdict: verdictOf(value) }
}

/** Returns the outcome like `answerOwn`, and aborts the call if the client disconnects before the answer. */
export function answerWhileThere(
  generation: GatewayGeneration,
  request: OwnRequest,
  service: Service,
  response: HttpReply,
): Promise<Outcome> {
  const signal = new Cancellation()
  const left = () => signal.abort(gatewayError('cancelled', 'the client disconnected'))
  if (response.destroyed) left()
  response.once('close', left)
  return answerOwn(generation, request, service, { signal }).finally(() => response.off('close', left))
}

/**
 * Answers `subscriptions/listen`, or the GET of the legacy era, with an open stream. Faults treat the stream as a call
 * that ends with the stream. Without armed faults, keeps no state, because there may be thousands of streams. Resolves
 * when the stream has begun or was refused. `begin` opens the stream; its argument is the number of messages by which a
 * resumed stream starts late.
 */
export async function answerListen(
  generation: GatewayGeneration,
  { endpoint, response }: InboundRequest,
  requestOf: () => OwnRequest,
  /** Called after each write that the client's connection may not accept. */
  wrote: () => void,
  begin: (shift: number) => void | Promise<void>,
): Promise<void> {
  if (generation.clientFaults(endpoint.server ?? '', LISTEN) === undefined) return begin(0)
  const request = requestOf()
  const { id } = request
  const shaped = new ShapedReply(response, wrote)
  let shift = 0
  const channel: Channel = {
    open: () => undefined,
    pause: () => undefined,
    send: () => undefined,
    wire: { shape: (shape) => shaped.add(shape), resume: (by) => void (shift = by) },
  }
  return new Promise((begun, reject) => {
    const stand: Service = async () => {
      const closed = new Promise<void>((resolve) => {
        if (response.destroyed) resolve()
        else response.once('close', resolve)
      })
      await begin(shift)
      begun()
      await closed
      return ownResult(id, '{}')
    }
    answerOwn(generation, request, stand, { signal: new Cancellation(), channel }).then((outcome) => {
      // Sends nothing if the stream has already ended.
      sendOutcome(response, id, outcome, endpoint.server)
      begun()
    }, reject)
  })
}

/** Sends an outcome to the client, with additional headers. */
export function sendOutcome(
  response: HttpReply,
  id: RequestId,
  outcome: Outcome,
  server: string | undefined,
  more: Readonly<Record<string, string>> = {},
): void {
  const { text, headers, wire } = respond(id, outcome, { server })
  if (wire === undefined) sendJson(response, 200, text, { ...headers, ...more })
  else putOnWire(response, { ...wire, headers: { ...wire.headers, ...more } })
}
