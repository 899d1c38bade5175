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
 * Whether a server which has forgotten the session gives a reply only to a request that it did not run: it `says` that it
 * knows no such session, or `implies` it by the status; `none`: the server may have run the request.
 */
export type LossProof = 'says' | 'implies' | 'none'

/**
 * A reply that the server would also give if it had forgotten the session. Such replies come from tools and proxies too,
 * after the call has run, so nothing follows from one alone.
 */
export interface SuspectedLoss {
  readonly kind: 'suspected_loss'
  readonly proof: LossProof
  /** The meaning of the reply if the session is still known. */
  readonly otherwise: Outcome
}

/** The meaning of a reply that is no event stream. */
export type Reading = Outcome | SuspectedLoss

const sent = true

/** The facts about a request that are needed to read its reply. */
interface ReadingContext {
  /** Whether the request named a session: only then may the reply mean that it is lost. */
  readonly hasSession: boolean
  /** Milliseconds since the Unix epoch. */
  readonly wallMs: number
  /** Takes secrets out of the server's words; unless given, only what is secret by its shape. */
  readonly conceal?: Conceal
  /** Whether the URL of the entry has no path. */
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

/** Whether the reply does not answer the request, whatever its status: a proxy's error, or a login page. A rate limit is an answer. */
function isNoAnswer(outcome: Outcome): boolean {
  return outcome.kind === 'failed' && outcome.error.reason !== 'upstream_rate_limited'
}

/** Reads a response that came in a stream of events; what came before it may be of a request that runs. */
export function readStreamed(id: RequestId, response: Envelope, hasSession: boolean): Reading {
  const otherwise = answered(id, response, 200)
  if (!hasSession || isResult(otherwise)) return otherwise
  const proof = lossProof(200, response, id) ?? (isOrphanError(response) ? 'none' : undefined)
  return proof === undefined ? otherwise : { kind: 'suspected_loss', proof, otherwise }
}

/** Whether a response is an error that names no request. */
export function isOrphanError({ value }: Envelope): boolean {
  return isOrphan(value) && isObject(value.error)
}

/** The official Python SDK names no request by this id, because its messages cannot have `null` for one. */
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
  // The call has run, whatever the status.
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

/** An address without what may be a secret in it. */
const addressIn = (location: string) =>
  printable(location.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//'), 512)

const ANOTHER = 'the server answered another request than ours'

function noResponse(status: number, headers: ReplyHeaders, conceal: Conceal): GatewayError {
  const shown = (header: string) => printable(conceal(header), 64)
  const what = headers.mediaType === '' ? 'something without a content type' : shown(headers.mediaType)
  // Requests name no coding that they take, and so anything may come.
  const coding = headers.get('content-encoding')
  const how = coding === undefined ? what : `${what}, compressed with ${shown(coding)}`
  return gatewayError('bad_reply', `the reply is no JSON-RPC response (HTTP ${status}, ${how})`, { sent })
}

/** An answer of the server; one without an id, or with the text of a number, gets the caller's. */
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

/** Words by which servers of many makes say that they know no such session, or none at all. */
const ofSessions = /session|not initialized|unknown client|before initiali[sz]ation/i

/** All that servers of the official Python SDK say of a request in a session that has not begun, and of malformed ones. */
const ofParameters = /^invalid request parameters$/i

/** Codes that servers give for an unknown session: of the reference servers, and "invalid request". */
const codesOfSessions: ReadonlySet<unknown> = new Set([-32001, -32600])

/**
 * Whether a reply to a request that named a session is one that a server gives which has forgotten it, and its proof.
 * The specification wants a 404; a 400 that speaks of sessions is a common bug, and a 410 its near relative. One that
 * answers our very request by its id, and does not speak of sessions, was given by somebody who has read the request.
 * All other replies prove nothing: credentials, conflicts and server errors, and errors under HTTP 200.
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

/** Whether a reply says that the server speaks no version of the era which the gateway chose for it. */
export function isVersionError(reading: Reading): boolean {
  if (reading.kind !== 'answered') return false
  const { error } = reading.result.value
  if (!isObject(error) || error.code !== UNSUPPORTED_VERSION) return false
  const { requested, supported }: { requested?: unknown; supported?: unknown } = isObject(error.data)
    ? error.data
    : {}
  if (requested === undefined || requested === MODERN_VERSION) return true
  // It may refuse the version that one client chose, and speak another one of the same era.
  return isLegacyVersion(requested) && !(Array.isArray(supported) && supported.some(isLegacyVersion))
}

/** `Retry-After` in milliseconds, from seconds or a date; undefined when absent or absurd (over a day). */
export function retryAfter(headers: Pick<ReplyHeaders, 'get'>, wallMs: number): number | undefined {
  const value = headers.get('retry-after')
  if (value === undefined) return undefined
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - wallMs
  return ms >= 0 && ms <= 86_400_000 ? ms : undefined
}

/** The headers of a reply, as they came from the wire; read by name only, for hardly any is ever looked at. */
export class ReplyHeaders {
  readonly #raw: readonly Buffer[]

  /** `raw` holds names and values in turn. */
  constructor(raw: readonly Buffer[]) {
    this.#raw = raw
  }

  /** The first value of a header; `name` in lower case. */
  get(name: string): string | undefined {
    for (let at = 0; at + 1 < this.#raw.length; at += 2) {
      const candidate = this.#raw[at]
      // By length first: most names need not become strings.
      if (candidate?.length !== name.length || candidate.toString('latin1').toLowerCase() !== name) continue
      return this.#raw[at + 1]?.toString('latin1')
    }
    return undefined
  }

  /** The media type, in lower case; empty when there is none. */
  get mediaType(): string {
    return this.get('content-type')?.toLowerCase() ?? ''
  }
}
