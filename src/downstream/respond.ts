import { debugHeader } from '../mesh/injected.ts'
import type {
  Call,
  CallRecord,
  CallResult,
  Outcome,
  PolicyName,
  RequestId,
  WireReply,
  Partial,
} from '../mesh/call.ts'
import { mayBeRepeated, wasTurnedDown } from '../mesh/classify.ts'
import { type GatewayError, stableCode } from '../mesh/errors.ts'
import type { Millis } from '../mesh/clock.ts'
import type { Effect } from '../mesh/policy.ts'
import { errorText, paramsOf, resultText, isObject } from '../protocol/jsonrpc.ts'
import { waitDuration } from '../units/duration.ts'
import { type Edit, elements, locate } from '../protocol/json-span.ts'
import { edited } from '../protocol/large-message.ts'
import { PARTIAL_KEY, withMeta } from '../protocol/meta.ts'

/** The subject of an error, as far as the caller may know it. */
type Subject = { readonly [Key in 'server' | 'tool' | 'message' | 'record']?: Call[Key] | undefined }

/** How agents see an error of the gateway. */
export interface Manner {
  /** How agents get tool call errors: as JSON-RPC errors (default), or as results a model can read. */
  readonly deliver?: 'protocol_error' | 'tool_result'
  /** Returns the effect of calling the tool again; unknown unless given. */
  readonly effectOf?: () => Effect
}

/** A complete JSON-RPC response, and the HTTP status that goes with it. */
export interface Response {
  readonly text: string
  readonly status: number
  /** The result of `JSON.parse` for `text`, where `text` was parsed already. */
  readonly value?: CallResult['value']
  /** How the response is sent, if not in the usual way. */
  readonly wire?: WireReply
  /** How long a gateway error tells its caller to stay away, in milliseconds. */
  readonly retryAfterMs?: Millis | undefined
  /** Whether the request was cancelled: the client then gets no answer. */
  readonly isTakenBack?: boolean
  /** More headers; a reply with an open stream has none. */
  readonly headers?: Readonly<Record<string, string>>
}

/** Names the faults that hit the call, if `chaos.debugHeader` is set. */
const FAULTS_HEADER = 'x-breakwater-faults'

/** The key in a gateway error result for the facts that `data` holds in a JSON-RPC error. */
export const ERROR_KEY = 'dev.breakwater/error'

/**
 * Converts an outcome to JSON-RPC: a server's reply unchanged, flagged when parts are missing; a gateway error with
 * facts an agent can act on.
 */
export function respond(id: RequestId, outcome: Outcome, subject: Subject, manner: Manner = {}): Response {
  return onWire(written(id, outcome, subject, manner), outcome, subject.record)
}

/** Applies the wire changes of the outcome and the call's record to a response. */
export function onWire(response: Response, { wire }: Outcome, record: CallRecord | undefined): Response {
  const said = record && debugHeader.of(record)
  if (said === undefined) return wire === undefined ? response : { ...response, wire }
  const headers = { [FAULTS_HEADER]: said }
  if (wire === undefined) return { ...response, headers }
  return { ...response, wire: { ...wire, headers: { ...wire.headers, ...headers } } }
}

function written(id: RequestId, outcome: Outcome, subject: Subject, manner: Manner): Response {
  if (outcome.kind === 'answered') return deliverable(withPartial(outcome))
  const uncertain = isUncertain(outcome.error, subject, manner)
  const error = uncertain ? { ...outcome.error, retryable: false, retryAfterMs: undefined } : outcome.error
  const by = outcome.kind === 'rejected' ? outcome.by : undefined
  const isLost = error.reason === 'session_lost'
  if (manner.deliver === 'tool_result' && !isLost && takesToolResult(subject)) {
    const words = forModel(error, subject, uncertain)
    const text = toolResultText(id, words, facts(error, subject, by))
    return { text, status: 200, retryAfterMs: error.retryAfterMs }
  }
  const text = gatewayErrorText(id, error, subject, by)
  return { text, status: isLost ? 404 : 200, retryAfterMs: error.retryAfterMs }
}

/** Whether only the agent can find out if a call that must not run twice has run. */
function isUncertain(error: GatewayError, { tool }: Subject, { effectOf }: Manner): boolean {
  return error.retryable && tool !== undefined && !mayBeRepeated(error, effectOf?.() ?? 'unknown')
}

/**
 * HTTP 404 tells a client that its session is over, which only the gateway knows: a server's 404 means something else.
 * A result always gets status 200: official clients discard results with another status.
 */
function deliverable(result: CallResult): Response {
  const isMisleading = result.status === 404 || (result.status !== 200 && !('error' in result.value))
  return isMisleading ? { ...result, status: 200 } : result
}

/** Returns the response to a cancelled request, whatever the answer; a fault may still break the connection. */
export function takenBack({ wire, status }: Response): Response {
  return { text: '', status, isTakenBack: true, ...(wire?.end === 'reset' && { wire }) }
}

/** Returns the response to a request refused by its limits. */
export function refusedFor(id: RequestId, error: GatewayError): Response {
  return { text: gatewayErrorText(id, error, {}), status: 200, retryAfterMs: error.retryAfterMs }
}

/** Returns the text of a gateway error: the cause, whether the call may have run, and when to retry. */
export function gatewayErrorText(
  id: RequestId | null,
  error: GatewayError,
  subject: Subject,
  by?: PolicyName,
): string {
  return errorText(id, error.code, inShort(error, subject), facts(error, subject, by))
}

function toolResultText(id: RequestId, words: string, said: object): string {
  const result = { content: [{ type: 'text', text: words }], isError: true, _meta: { [ERROR_KEY]: said } }
  return resultText(id, JSON.stringify(result))
}

/** Whether the call's answer is a tool result; the answer to a call run as a task is none. */
function takesToolResult({ tool, message }: Subject): boolean {
  return tool !== undefined && (message === undefined || paramsOf(message.value).task === undefined)
}

/** Returns the facts of an error that a program can act on. Unknown facts are left out. */
function facts(error: GatewayError, { server, tool, record }: Subject, by: PolicyName | undefined): object {
  return {
    code: stableCode(error.reason),
    reason: error.reason,
    ...(by === undefined ? {} : { by }),
    ...(server === undefined ? {} : { server }),
    ...(tool === undefined ? {} : { tool }),
    retryable: error.retryable,
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: Math.ceil(error.retryAfterMs) }),
    attempts: record?.attempts ?? 0,
    sent: error.sent,
  }
}

/** The place of an error, as far as the caller may know. */
interface Place {
  readonly server?: string | undefined
  readonly tool?: string | undefined
}

/** A line for logs and people: "search/query: breaker open; it was not sent; try again in 3 s". */
function inShort(error: GatewayError, { server, tool }: Place): string {
  const where = placeOf(server, tool)
  const words = where === '' ? error.message : `${where}: ${error.message}`
  const ran = tool === undefined ? '' : `; it ${whatRan(error)}`
  return (
    words +
    ran +
    (error.retryAfterMs === undefined ? '' : `; try again in ${waitDuration(error.retryAfterMs)}`)
  )
}

/** Sentences for a model, which decides the next step. */
function forModel(error: GatewayError, { server, tool }: Place, uncertain: boolean): string {
  const what = `The gateway could not get an answer from ${placeOf(server, tool)}: ${error.message}.`
  return `${what} The call ${whatRan(error)}. ${adviceOn(error, uncertain)}`
}

function adviceOn({ retryable, retryAfterMs }: GatewayError, uncertain: boolean): string {
  if (uncertain) return 'First check whether it has run: calling again may do it twice.'
  if (!retryable) return 'Trying the same call again will not help.'
  return retryAfterMs === undefined ? 'Try again later.' : `Try again in ${waitDuration(retryAfterMs)}.`
}

function placeOf(server: string | undefined, tool: string | undefined): string {
  if (server === undefined) return ''
  return tool === undefined ? server : `${server}/${tool}`
}

function whatRan(error: GatewayError): string {
  if (!error.sent) return 'was not sent'
  return wasTurnedDown(error) ? 'was turned down' : 'may have run'
}

/** Marks a reply as partial; all other bytes stay. A complete reply is returned unchanged. */
export function withPartial({ result, partial }: Outcome & { kind: 'answered' }): CallResult {
  // The server's own declaration is already there.
  if (partial === undefined || partial.source === 'declared' || !isObject(result.value.result)) return result
  const { notice, ...flag } = partial
  const flagged = withMeta(result, 'result', PARTIAL_KEY, flag)
  return notice ? noticed(flagged, partial) : flagged
}

/** Most hosts hide `_meta`: an extra text block tells the model. */
function noticed(reply: CallResult, { reason }: Partial): CallResult {
  const result = reply.value.result as Readonly<Record<string, unknown>>
  if (!Array.isArray(result.content)) return reply
  const block = { type: 'text', text: `[partial result] ${reason}` }
  const content = [...(result.content as unknown[]), block]
  const append = (text: string): Edit[] => {
    const span = locate(text, ['result', 'content'])
    if (span === undefined) return []
    let end = span.start + 1
    for (const element of elements(text, span.start)) end = element.end
    const comma = end === span.start + 1 ? '' : ','
    return [{ start: end, end, with: comma + JSON.stringify(block) }]
  }
  return edited(reply, append, { ...reply.value, result: { ...result, content } })
}
