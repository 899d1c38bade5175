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

/** How an error of the gateway is told. */
export interface Manner {
  /** How agents get those about tool calls: as JSON-RPC errors (default), or as results that a model can read. */
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
  /** How it is to be put on the wire, where that is not the usual way. */
  readonly wire?: WireReply
  /** For how long an error of ours tells its caller to stay away, in milliseconds. */
  readonly retryAfterMs?: Millis | undefined
  /** Whether its request was taken back: the client gets no answer then. */
  readonly isTakenBack?: boolean
  /** More headers; a reply whose stream has begun has none. */
  readonly headers?: Readonly<Record<string, string>>
}

/** Says which faults hit the call, where `chaos.debugHeader` asks for it. */
const FAULTS_HEADER = 'x-breakwater-faults'

/** Where a result that is an error of ours says what `data` says of a JSON-RPC error. */
export const ERROR_KEY = 'dev.breakwater/error'

/**
 * Writes an outcome as JSON-RPC: a server's reply as it came, flagged when something is missing of it; one of our
 * errors with what an agent can act on.
 */
export function respond(id: RequestId, outcome: Outcome, subject: Subject, manner: Manner = {}): Response {
  return onWire(written(id, outcome, subject, manner), outcome, subject.record)
}

/** The response as the outcome, and what was noted of its call, want it on the wire. */
export function onWire(response: Response, { wire }: Outcome, record: CallRecord | undefined): Response {
  const said = record?.debugHeader
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

/** Whether only the agent can find out if a call has run that must not run twice. */
function isUncertain(error: GatewayError, { tool }: Subject, { effectOf }: Manner): boolean {
  return error.retryable && tool !== undefined && !mayBeRepeated(error, effectOf?.() ?? 'unknown')
}

/**
 * HTTP 404 tells a client that its session is over, which only we can know: a server speaks of what it has not found. A result
 * is one whatever the server's status: official clients throw it away unless the status is 200.
 */
function deliverable(result: CallResult): Response {
  const isMisleading = result.status === 404 || (result.status !== 200 && !('error' in result.value))
  return isMisleading ? { ...result, status: 200 } : result
}

/** The response to a request that its client has taken back, whatever the answer is; a fault may break the connection all the same. */
export function takenBack({ wire, status }: Response): Response {
  return { text: '', status, isTakenBack: true, ...(wire?.end === 'reset' && { wire }) }
}

/** The response to a request that got no further than its limits. */
export function refusedFor(id: RequestId, error: GatewayError): Response {
  return { text: gatewayErrorText(id, error, {}), status: 200, retryAfterMs: error.retryAfterMs }
}

/** The text of an error of ours: what happened, whether the call may have run, and when to try again. */
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

/** Whether the answer to a call is a tool's result; that to a call which runs as a task is none. */
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

/** The place of an error, as far as the caller may know it. */
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
    words +
    ran +
    (error.retryAfterMs === undefined ? '' : `; try again in ${waitDuration(error.retryAfterMs)}`)
  )
}

/** Sentences for a model, which has to decide what to do next. */
function forModel(error: GatewayError, { server, tool }: Place, uncertain: boolean): string {
  const what = `The gateway could not get an answer of ${placeOf(server, tool)}: ${error.message}.`
  return `${what} The call ${whatRan(error)}. ${adviceOn(error, uncertain)}`
}

function adviceOn({ retryable, retryAfterMs }: GatewayError, uncertain: boolean): string {
  if (uncertain) return 'Find out first whether it has: to call it again may do it twice.'
  if (!retryable) return 'To try the same again will not help.'
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

/** A reply that says of itself what is missing of it; every other byte stays. One that is whole is the same object. */
export function withPartial({ result, partial }: Outcome & { kind: 'answered' }): CallResult {
  // The declaration of a server stands there already, in the server's own words.
  if (partial === undefined || partial.source === 'declared' || !isObject(result.value.result)) return result
  const { notice, ...flag } = partial
  const flagged = withMeta(result, 'result', PARTIAL_KEY, flag)
  return notice ? noticed(flagged, partial) : flagged
}

/** Most hosts show `_meta` to nobody: one more text block tells the model. */
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
