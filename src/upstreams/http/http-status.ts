import type { Outcome } from '../../mesh/call.ts'
import { verdictOf } from '../../mesh/classify.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { sizeFault } from '../../protocol/json-parse.ts'
import {
  isIdOf,
  isObject,
  kindOf,
  readMessage,
  type Envelope,
  type RequestId,
} from '../../protocol/jsonrpc.ts'
import { edit, locate, type Edit, prependMember, replaceAt } from '../../protocol/json-span.ts'
import type { LargeMessage } from '../../protocol/large-message.ts'
import { MODERN_VERSION, UNSUPPORTED_VERSION, isLegacyVersion } from '../../protocol/versions.ts'
import { redactShapes } from '../../config/secrets/redact-text.ts'
import { printable } from '../../telemetry/printable.ts'
import { type Conceal, excerptOfBody } from '../server-words.ts'

/**
 * How a reply shows that the session is lost: `says` in words, `implies` only by its status. `none`: the reply proves
 * nothing, and the server may have run the request.
 */
export type LossProof = 'says' | 'implies' | 'none'

/**
 * A reply that may mean a lost session. It proves nothing alone: a tool or proxy may send such a reply after the call
 * has run.
 */
export interface SuspectedLoss {
  readonly kind: 'suspected_loss'
  readonly proof: LossProof
  /** The meaning of the reply if the session is still known. */
  readonly otherwise: Outcome
}

/** The meaning of a reply. */
export type Reading = Outcome | SuspectedLoss

const sent = true

interface ReadingContext {
  /** Whether the request named a session: only then may the reply mean its loss. */
  readonly hasSession: boolean
  /** Milliseconds since the Unix epoch. */
  readonly wallMs: number
  /** Removes secrets from the server's words; by default only secrets recognisable by their shape. */
  readonly conceal?: Conceal
  /** Whether the server's URL in the config has no path. */
  readonly isWithoutPath?: boolean
}

/** Reads a complete HTTP reply to the request `id`. */
export function readReply(
  id: RequestId,
  status: number,
  headers: ReplyHeaders,
  text: string,
  { hasSession, wallMs, conceal = redactShapes, isWithoutPath = false }: ReadingContext,
): Reading {
  const otherwise = outcomeOf(id, status, headers, text, { wallMs, conceal, isWithoutPath })
  if (!hasSession || isResult(otherwise) || isVersionError(otherwise)) return otherwise
  const proof = lossProof(status, readMessage(text), id) ?? (isNoAnswer(otherwise) ? 'none' : undefined)
  return proof === undefined ? otherwise : { kind: 'suspected_loss', proof, otherwise }
}

/**
 * Whether the reply does not answer the request, whatever its status: a proxy error, or a login page. A rate limit
 * counts as an answer.
 */
function isNoAnswer(outcome: Outcome): boolean {
  return outcome.kind === 'failed' && outcome.error.reason !== 'upstream_rate_limited'
}

/**
 * Reads a response from an event stream. Such a response never proves a lost session, because the request may have run.
 */
export function readStreamed(id: RequestId, response: Envelope, hasSession: boolean): Reading {
  const otherwise = answered(id, response, 200)
  if (!hasSession || isResult(otherwise)) return otherwise
  const proof = lossProof(200, response, id) ?? (isOrphanError(response) ? 'none' : undefined)
  return proof === undefined ? otherwise : { kind: 'suspected_loss', proof, otherwise }
}

/** Whether a response is an error without a request id. */
export function isOrphanError({ value }: Envelope): boolean {
  return isOrphan(value) && isObject(value.error)
}

/** The official Python SDK uses this id for "no request", because its messages cannot have a `null` id. */
const NO_REQUEST = 'server-error'

function isOrphan({ id }: Envelope['value']): boolean {
  return id === null || id === undefined || id === NO_REQUEST
}

function isResult(outcome: Outcome): boolean {
  return outcome.kind === 'answered' && outcome.result.value.error === undefined
}

function outcomeOf(
  id: RequestId,
  status: number,
  headers: ReplyHeaders,
  text: string,
  { wallMs, conceal, isWithoutPath }: Required<Omit<ReadingContext, 'hasSession'>>,
): Outcome {
  const said = () => {
    const words = excerptOfBody(text, conceal)
    return words === undefined ? `HTTP ${status}` : `HTTP ${status}: ${words}`
  }
  const response = readMessage(text)
  const isResponse = response !== undefined && kindOf(response.value) === 'response'
  // A result proves that the call has run, whatever the status.
  if (isResponse && 'result' in response.value && isIdOf(response.value.id, id))
    return answered(id, response, status)
  if (status === 401) {
    return failed(
      gatewayError('upstream_unauthorized', `the server refused our credentials (${said()})`, { sent }),
    )
  }
  if (status === 403) {
    return failed(gatewayError('upstream_forbidden', `the server forbids the request (${said()})`, { sent }))
  }
  if (status === 429) {
    const retryAfterMs = retryAfter(headers, wallMs)
    return failed(
      gatewayError('upstream_rate_limited', `the server limits our rate (${said()})`, { sent, retryAfterMs }),
    )
  }
  if (isResponse) {
    if (isIdOf(response.value.id, id) || (status >= 400 && isOrphan(response.value)))
      return answered(id, response, status)
    return failed(gatewayError('bad_reply', ANOTHER, { sent }))
  }
  if (status >= 500) {
    const retryAfterMs = retryAfter(headers, wallMs)
    return failed(gatewayError('upstream_status', `the server answered ${said()}`, { sent, retryAfterMs }))
  }
  if (status >= 300) {
    const to = status < 400 ? headers.get('location') : undefined
    const message =
      to === undefined
        ? `the server refused the request (${said()})${isWithoutPath && status === 404 ? PATHLESS : ''}`
        : `the server redirects (HTTP ${status}) to ${conceal(addressIn(to))}: write that address in the config`
    return failed(gatewayError('upstream_refused', message, { sent, status }))
  }
  const fault = sizeFault(text)
  if (fault !== undefined) return failed(gatewayError('bad_reply', fault, { sent }))
  return failed(noResponse(status, headers, conceal))
}

/** Reads a large reply with status 200 to the request `id`. */
export function readLargeReply(
  id: RequestId,
  headers: ReplyHeaders,
  message: LargeMessage,
  conceal: Conceal,
): Outcome {
  const { value } = message
  if (kindOf(value) !== 'response') return failed(noResponse(message.status, headers, conceal))
  if (!isIdOf(value.id, id)) return failed(gatewayError('bad_reply', ANOTHER, { sent }))
  const result =
    value.id === id ? message : message.edited((text) => idAt(text, id), { value: { ...value, id } })
  return { kind: 'answered', result, verdict: verdictOf(value) }
}

const PATHLESS = ': the url of its entry has no path, and most servers have /mcp'

/** Returns an address without possible secrets. */
const addressIn = (location: string) =>
  printable(location.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//'), 512)

const ANOTHER = 'the server answered a different request'

function noResponse(status: number, headers: ReplyHeaders, conceal: Conceal): GatewayError {
  const shown = (header: string) => printable(conceal(header), 64)
  const what = headers.mediaType === '' ? 'something without a content type' : shown(headers.mediaType)
  // Requests name no accepted codings, so any coding may come.
  const coding = headers.get('content-encoding')
  const how = coding === undefined ? what : `${what}, compressed with ${shown(coding)}`
  return gatewayError('bad_reply', `the reply is not a JSON-RPC response (HTTP ${status}, ${how})`, { sent })
}

/** Converts an answer of the server; a missing id, or a number sent as text, becomes the caller's id. */
export function answered(id: RequestId, response: Envelope, status: number): Outcome {
  const { text, value } = response.value.id === id ? response : adopt(id, response)
  return { kind: 'answered', result: { text, value, status }, verdict: verdictOf(value) }
}

function adopt(id: RequestId, { text, value }: Envelope): Envelope {
  const named = 'id' in value ? replaceAt(text, ['id'], id) : prependMember(text, 'id', JSON.stringify(id))
  return { text: named, value: { ...value, id } }
}

/** Returns the edit that replaces the id of a message. */
function idAt(text: string, id: RequestId): Edit[] {
  const span = locate(text, ['id'])
  return span === undefined ? [] : [edit(span, JSON.stringify(id))]
}

function failed(error: GatewayError): Outcome {
  return { kind: 'failed', error }
}

/** Matches words in many servers' errors for an unknown or missing session. */
const ofSessions = /session|not initialized|unknown client|before initiali[sz]ation/i

/** The full reply of official Python SDK servers to requests in an uninitialised session, and to malformed requests. */
const ofParameters = /^invalid request parameters$/i

/** Error codes for an unknown session: -32001 of the reference servers, and -32600 ("invalid request"). */
const codesOfSessions: ReadonlySet<unknown> = new Set([-32001, -32600])

/**
 * Returns how a reply to a request with a session shows that the server forgot the session; undefined if it does not.
 * The specification demands a 404; a 410 is similar, and many servers wrongly send a 400 whose text mentions sessions.
 * A reply with our request id but no words about sessions is no such sign, because its sender has read the request.
 * Refused credentials, conflicts, server errors, and errors with HTTP 200 prove nothing.
 */
export function lossProof(
  status: number,
  response: Envelope | undefined,
  id?: RequestId,
): LossProof | undefined {
  if (status === 401 || status === 403 || status === 409 || status >= 500) return 'none'
  const isOfSessions = status === 404 || status === 410
  if (status >= 300 && status !== 400 && !isOfSessions) return undefined
  const value = response?.value
  const error = isObject(value?.error) ? value.error : undefined
  const words = typeof error?.message === 'string' ? error.message : ''
  const speaks = ofSessions.test(words)
  if (status >= 300) {
    if (speaks) return 'says'
    if (id === undefined || !isIdOf(value?.id, id)) return isOfSessions ? 'implies' : 'none'
  }
  return speaks || ofParameters.test(words) || codesOfSessions.has(error?.code) ? 'none' : undefined
}

/** Whether the server's answer says that it speaks no version of the era chosen by the gateway. */
export function isVersionError(reading: Reading): boolean {
  if (reading.kind !== 'answered') return false
  const { error } = reading.result.value
  if (!isObject(error) || error.code !== UNSUPPORTED_VERSION) return false
  const { requested, supported }: { requested?: unknown; supported?: unknown } = isObject(error.data)
    ? error.data
    : {}
  if (requested === undefined || requested === MODERN_VERSION) return true
  // The server may refuse one client's version but speak another version of the era.
  return isLegacyVersion(requested) && !(Array.isArray(supported) && supported.some(isLegacyVersion))
}

/** `Retry-After` in milliseconds, from seconds or a date; undefined when absent or absurd (over a day). */
export function retryAfter(headers: Pick<ReplyHeaders, 'get'>, wallMs: number): number | undefined {
  const value = headers.get('retry-after')
  if (value === undefined) return undefined
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - wallMs
  return ms >= 0 && ms <= 86_400_000 ? ms : undefined
}

/** The headers of a reply, read by name on demand, because few are ever read. */
export class ReplyHeaders {
  readonly #raw: readonly Buffer[] | undefined
  readonly #fields: readonly string[]

  /** `raw` holds names and values in turn. */
  constructor(raw: readonly Buffer[] | undefined, fields: readonly string[] = []) {
    this.#raw = raw
    this.#fields = fields
  }

  /** Returns headers from names in lower case and values, in turn. */
  static of(fields: readonly string[]): ReplyHeaders {
    return new ReplyHeaders(undefined, fields)
  }

  /** The first value of a header; `name` in lower case. */
  get(name: string): string | undefined {
    if (this.#raw !== undefined) return inRaw(this.#raw, name)
    const fields = this.#fields
    for (let at = 0; at < fields.length; at += 2) if (fields[at] === name) return fields[at + 1]
    return undefined
  }

  /** The media type in lower case; empty when absent. */
  get mediaType(): string {
    return this.get('content-type')?.toLowerCase() ?? ''
  }
}

function inRaw(raw: readonly Buffer[], name: string): string | undefined {
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const candidate = raw[at]
    // Compares lengths first, so most names need not become strings.
    if (candidate?.length !== name.length || candidate.toString('latin1').toLowerCase() !== name) continue
    return raw[at + 1]?.toString('latin1')
  }
  return undefined
}
