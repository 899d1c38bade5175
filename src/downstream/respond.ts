import type {
  CallRecord,
  CallResult,
  Message,
  Outcome,
  PolicyName,
  RequestId,
  WireReply,
} from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { type GatewayError, reasons } from '../mesh/errors.ts'
import { errorText, paramsOf, resultText } from '../protocol/jsonrpc.ts'
import { withPartial } from './partial.ts'

/** What an error is about, as far as the caller may know. */
interface Subject {
  readonly server?: string | undefined
  readonly tool?: string | undefined
  readonly message?: Message | undefined
  readonly record?: CallRecord | undefined
}

/** How agents get errors of the gateway about tool calls: as JSON-RPC errors, or as results that a model can read. */
type Delivery = 'protocol_error' | 'tool_result'

/** A complete JSON-RPC response, and the HTTP status that goes with it. */
export interface Response {
  readonly text: string
  readonly status: number
  /** What `JSON.parse` made of `text`, where somebody has done that already. */
  readonly value?: CallResult['value']
  /** How it is to be put on the wire, where that is not the usual way. */
  readonly wire?: WireReply
}

/** Where a result that is an error of ours says what `data` says of a JSON-RPC error. */
export const ERROR_KEY = 'dev.breakwater/error'

/**
 * Writes an outcome as JSON-RPC: a server's reply as it came, flagged when something is missing of it; one of our
 * errors with what an agent can act on.
 */
export function respond(
  id: RequestId,
  outcome: Outcome,
  subject: Subject,
  delivery: Delivery = 'protocol_error',
): Response {
  return onWire(written(id, outcome, subject, delivery), outcome)
}

/** The response as the outcome wants it on the wire. */
export function onWire(response: Response, { wire }: Outcome): Response {
  return wire === undefined ? response : { ...response, wire }
}

function written(id: RequestId, outcome: Outcome, subject: Subject, delivery: Delivery): Response {
  if (outcome.kind === 'answered') return notLost(withPartial(outcome))
  const { error } = outcome
  const by = outcome.kind === 'rejected' ? outcome.by : undefined
  const isLost = error.reason === 'session_lost'
  if (delivery === 'tool_result' && !isLost && takesToolResult(subject))
    return { text: toolResultText(id, error, subject, by), status: 200 }
  return { text: gatewayErrorText(id, error, subject, by), status: isLost ? 404 : 200 }
}

/** HTTP 404 tells a client that its session is over, which only we can know: a server speaks of what it has not found. */
function notLost(result: CallResult): Response {
  return result.status === 404 ? { ...result, status: 200 } : result
}

/** The text of an error of ours: what happened, whether the call may have run, and when to try again. */
export function gatewayErrorText(
  id: RequestId | null,
  error: GatewayError,
  subject: Subject,
  by?: PolicyName,
): string {
  return errorText(id, reasons[error.reason].code, inShort(error, subject), facts(error, subject, by))
}

function toolResultText(
  id: RequestId,
  error: GatewayError,
  subject: Subject,
  by: PolicyName | undefined,
): string {
  const result = {
    content: [{ type: 'text', text: forModel(error, subject) }],
    isError: true,
    _meta: { [ERROR_KEY]: facts(error, subject, by) },
  }
  return resultText(id, JSON.stringify(result))
}

/** Whether the answer to a call is a tool's result; that to a call which runs as a task is none. */
function takesToolResult({ tool, message }: Subject): boolean {
  return tool !== undefined && (message === undefined || paramsOf(message.value).task === undefined)
}

/** What a program can act on. What is not known is left out. */
function facts(error: GatewayError, { server, tool, record }: Subject, by: PolicyName | undefined): object {
  const { stable, retryable } = reasons[error.reason]
  return {
    code: stable,
    reason: error.reason,
    ...(by === undefined ? {} : { by }),
    ...(server === undefined ? {} : { server }),
    ...(tool === undefined ? {} : { tool }),
    retryable,
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: Math.ceil(error.retryAfterMs) }),
    attempts: record?.attempts ?? 0,
    sent: error.sent,
  }
}

/** What an error is about, as far as the caller may know. */
interface Place {
  readonly server?: string | undefined
  readonly tool?: string | undefined
}

/** One line for logs and people: "search/query: breaker open; it was not sent; try again in 3 s". */
function inShort(error: GatewayError, { server, tool }: Place): string {
  const where = placeOf(server, tool)
  const words = where === '' ? error.message : `${where}: ${error.message}`
  const ran = tool === undefined ? '' : `; it ${whatRan(error)}`
  return (
    words + ran + (error.retryAfterMs === undefined ? '' : `; try again in ${lasting(error.retryAfterMs)}`)
  )
}

/** Sentences for a model, which has to decide what to do next. */
function forModel(error: GatewayError, { server, tool }: Place): string {
  const { retryable } = reasons[error.reason]
  const what = `The gateway could not get an answer of ${placeOf(server, tool)}: ${error.message}.`
  return `${what} The call ${whatRan(error)}. ${adviceOn(error, retryable)}`
}

function adviceOn({ sent, retryAfterMs }: GatewayError, retryable: boolean): string {
  if (!retryable) return 'To try the same again will not help.'
  const again = retryAfterMs === undefined ? 'Try again later' : `Try again in ${lasting(retryAfterMs)}`
  return sent ? `${again}; if the tool changes something, check first whether it has.` : `${again}.`
}

function placeOf(server: string | undefined, tool: string | undefined): string {
  if (server === undefined) return ''
  return tool === undefined ? server : `${server}/${tool}`
}

function whatRan({ sent }: GatewayError): string {
  return sent ? 'may have run' : 'was not sent'
}

/** A time to wait, rounded up: who comes too early is sent away again. */
function lasting(ms: Millis): string {
  return ms < 1_000 ? `${Math.ceil(ms)} ms` : `${Math.ceil(ms / 1_000)} s`
}
