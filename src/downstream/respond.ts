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
import { isUncertain, wasTurnedDown } from '../mesh/classify.ts'
import { type GatewayError, stableCode } from '../mesh/errors.ts'
import type { Millis } from '../mesh/clock.ts'
import type { Effect } from '../mesh/policy.ts'
import { errorText, paramsOf, resultText, isObject } from '../protocol/jsonrpc.ts'
import { waitDuration } from '../units/duration.ts'
import { type Edit, elements, locate } from '../protocol/json-span.ts'
import { edited } from '../protocol/large-message.ts'
import { PARTIAL_KEY, withMeta } from '../protocol/meta.ts'

/** The facts about a failed call that the agent may know. */
type Subject = { readonly [Key in 'server' | 'tool' | 'message' | 'record']?: Call[Key] | undefined }

/** The form in which agents get an error of the gateway. */
export interface Manner {
  /** The form of tool call errors: JSON-RPC errors (default), or results that a model can read. */
  readonly deliver?: 'protocol_error' | 'tool_result'
  /** Returns the effect of calling the tool again; without this function the effect is unknown. */
  readonly effectOf?: () => Effect
}

/** A complete JSON-RPC response, and the HTTP status that goes with it. */
export interface Response {
  readonly text: string
  readonly status: number
  /** The parsed `text`, if it was parsed already. */
  readonly value?: CallResult['value']
  /** A fault's changes to how the response is sent. */
  readonly wire?: WireReply
  /** The retry time of a gateway error, in milliseconds. */
  readonly retryAfterMs?: Millis | undefined
  /** True when the request was cancelled: the client then gets no answer. */
  readonly isTakenBack?: boolean
  /** Additional headers; ignored for a reply with an open stream. */
  readonly headers?: Readonly<Record<string, string>>
}

/** The header with the names of the faults that hit the call, if `chaos.debugHeader` is set. */
const FAULTS_HEADER = 'x-breakwater-faults'

/** The `_meta` key of a tool result for the facts that a JSON-RPC error has in `data`. */
export const ERROR_KEY = 'dev.breakwater/error'

/**
 * Converts an outcome to JSON-RPC. A server's reply stays unchanged, with a flag when parts are missing. An error of
 * the gateway gets facts that an agent can use.
 */
export function respond(id: RequestId, outcome: Outcome, subject: Subject, manner: Manner = {}): Response {
  return onWire(written(id, outcome, subject, manner), outcome, subject.record)
}

/**
 * Returns a response with the changes of faults to its sending, and with the header that names the faults, if enabled.
 */
export function onWire(response: Response, { wire }: Outcome, record: CallRecord | undefined): Response {
  const said = record && debugHeader.of(record)
  if (said === undefined) return wire === undefined ? response : { ...response, wire }
  const headers = { [FAULTS_HEADER]: said }
  if (wire === undefined) return { ...response, headers }
  return { ...response, wire: { ...wire, headers: { ...wire.headers, ...headers } } }
}

function written(id: RequestId, outcome: Outcome, subject: Subject, manner: Manner): Response {
  if (outcome.kind === 'answered') return deliverable(withPartial(outcome))
  const uncertain = subject.tool !== undefined && isUncertain(outcome.error, manner.effectOf?.() ?? 'unknown')
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

/**
 * Replaces a misleading HTTP status by 200. To a client, 404 means that its session has ended; a server's 404 does not
 * mean this. Official clients discard a result with another status than 200.
 */
function deliverable(result: CallResult): Response {
  const isMisleading = result.status === 404 || (result.status !== 200 && !('error' in result.value))
  return isMisleading ? { ...result, status: 200 } : result
}

/** Returns the response to a cancelled request, without the answer. A fault may still break the connection. */
export function takenBack({ wire, status }: Response): Response {
  return { text: '', status, isTakenBack: true, ...(wire?.end === 'reset' && { wire }) }
}

/** Returns the response to a request that a limit refused. */
export function refusedFor(id: RequestId, error: GatewayError): Response {
  return { text: gatewayErrorText(id, error, {}), status: 200, retryAfterMs: error.retryAfterMs }
}

/** Returns the text of a gateway error. It names the cause, says if the call may have run, and tells the retry time. */
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

/** True when the answer to the call is a tool result; false for a call that runs as a task. */
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

/** The server and the tool of an error, as far as the agent may know them. */
interface Place {
  readonly server?: string | undefined
  readonly tool?: string | undefined
}

/** Returns one line for logs and people: "search/query: breaker open; it was not sent; try again in 3 s". */
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

/** Returns sentences for a model that decides the next step. */
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

/** Returns a partial reply with a mark in `_meta`, other bytes unchanged. Returns a complete reply unchanged. */
export function withPartial({ result, partial }: Outcome & { kind: 'answered' }): CallResult {
  // Adds no mark if the server itself has declared the reply partial.
  if (partial === undefined || partial.source === 'declared' || !isObject(result.value.result)) return result
  const { notice, ...flag } = partial
  const flagged = withMeta(result, 'result', PARTIAL_KEY, flag)
  return notice ? noticed(flagged, partial) : flagged
}

/** Returns the reply with a text block that tells the model, because most hosts hide `_meta`. */
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
