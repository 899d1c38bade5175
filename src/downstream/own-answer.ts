import type { ServerResponse } from 'node:http'
import {
  type Call,
  type Caller,
  type Channel,
  type Message,
  newRecord,
  type Outcome,
  type RequestId,
} from '../mesh/call.ts'
import { verdictOf } from '../mesh/classify.ts'
import { Cancellation, type Signal } from '../mesh/cancel.ts'
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
import type { Tenancy } from './limits/tenancy.ts'

/** A request that the gateway answers by itself, and whose it is. */
export interface OwnRequest {
  readonly incoming: Pick<InboundRequest, 'endpoint' | 'headers'>
  readonly id: RequestId
  readonly message: Message
  readonly caller: Caller
  readonly tenancy: Tenancy
  /** Where faults get at more than the answer; nothing unless given. */
  readonly channel?: Channel
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: Signal
  readonly now: Millis
}

/** Passes an answer of the gateway's own through the faults; resolves always. */
export type FaultedAnswer = (answer: () => Promise<Outcome>) => Promise<Outcome>

/**
 * The faults towards agents that an answer of the gateway's own has to pass; undefined while none is armed for it. To them the
 * endpoint over all servers is a server without a name, so that they hit it where they name none.
 */
export function faultedAnswer(
  { clientFaults }: GatewayGeneration,
  server: string | undefined,
  method: string,
): ((request: OwnRequest) => FaultedAnswer) | undefined {
  const layer = clientFaults(server ?? '', method)
  if (layer === undefined) return undefined
  return (request) => (answer) => layer(answer)(callOf(request, method))
}

function callOf(
  { incoming, id, message, caller, tenancy, channel, signal, now }: OwnRequest,
  method: string,
): Call {
  const { endpoint, headers } = incoming
  return {
    ...ownCall(endpoint.server ?? '', method, {}, signal),
    ...tenancy,
    id,
    message,
    inbound: headers,
    caller,
    ...(channel && { channel }),
    record: newRecord(now),
  }
}

/** An answer of the gateway's own as an outcome. */
export function ownAnswer(text: string): Outcome {
  const value = parseExactly(text) as Message['value']
  return { kind: 'answered', result: { text, value, status: 200 }, verdict: verdictOf(value) }
}

/** Runs a task for a client; its signal aborts when the client leaves before it is done. */
export async function whileThere<Done>(
  response: ServerResponse,
  task: (signal: Signal) => Promise<Done>,
): Promise<Done> {
  const signal = new Cancellation()
  const left = () => signal.abort(gatewayError('cancelled', 'the client has left'))
  if (response.destroyed) left()
  response.once('close', left)
  try {
    return await task(signal)
  } finally {
    response.off('close', left)
  }
}

/**
 * Has a standing stream pass faults: to them it is a call that is over when the stream is. Resolves when it has begun, or is
 * refused; `begin` gets by how many messages it is to begin later than it should, where it can be taken up again.
 */
export function listenFaulted(
  faulted: (request: OwnRequest) => FaultedAnswer,
  request: Omit<OwnRequest, 'signal' | 'channel'>,
  reply: {
    readonly response: ServerResponse
    /** Told when the client does not take what is written. */
    readonly wrote: () => void
  },
  begin: (shift: number) => void | Promise<void>,
): Promise<void> {
  const { id, incoming } = request
  const { response, wrote } = reply
  const shaped = new ShapedReply(response, wrote)
  let shift = 0
  let hasBegun = false
  const channel: Channel = {
    open: () => undefined,
    pause: () => undefined,
    send: () => undefined,
    shape: (shape) => shaped.add(shape),
    resume: (by) => void (shift = by),
  }
  return new Promise((begun, reject) => {
    const stream = (signal: Signal) =>
      faulted({ ...request, signal, channel })(async () => {
        hasBegun = true
        const closed = new Promise<void>((resolve) => {
          if (response.destroyed) resolve()
          else response.once('close', resolve)
        })
        await begin(shift)
        begun()
        await closed
        return ownAnswer(resultText(id, '{}'))
      })
    void stream(new Cancellation()).then((outcome) => {
      if (!hasBegun) sendOutcome(response, id, outcome, incoming.endpoint.server)
      begun()
    }, reject)
  })
}

/** Sends what has become of an answer, with more headers. */
export function sendOutcome(
  response: ServerResponse,
  id: RequestId,
  outcome: Outcome,
  server: string | undefined,
  more: Readonly<Record<string, string>> = {},
): void {
  const { text, headers, wire } = respond(id, outcome, { server })
  if (wire === undefined) sendJson(response, 200, text, { ...headers, ...more })
  else putOnWire(response, { ...wire, headers: { ...wire.headers, ...more } })
}
