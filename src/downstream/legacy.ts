import type { Message } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { askedLimitMs } from '../policies/deadline/asked.ts'
import {
  idOf,
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  paramsOf,
  readMessages,
  type RequestId,
  resultText,
} from '../protocol/jsonrpc.ts'
import { paramsFault } from '../protocol/params-check.ts'
import { allowsBatches, ASSUMED_VERSION, isLegacyVersion, negotiate } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { principalOf } from './credentials.ts'
import { Dialogue } from './dialogue.ts'
import type { Welcome } from './front.ts'
import type { Guards } from './guards.ts'
import { tooMuchToSay } from './hello.ts'
import { refusal, type Refusal, refuse, sendJson } from './post-reply.ts'
import { gatewayErrorText } from './respond.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import type { Visit } from './visit.ts'

/** The 2025 era towards agents: sessions, batches, streams. */
export class LegacyEndpoint {
  readonly #live: Live<GatewayGeneration>
  readonly #sessions: Sessions
  readonly #clock: Clock
  readonly #guards: Guards
  readonly #dialogue: Dialogue

  constructor(live: Live<GatewayGeneration>, sessions: Sessions, clock: Clock, guards: Guards) {
    this.#live = live
    this.#sessions = sessions
    this.#clock = clock
    this.#guards = guards
    this.#dialogue = new Dialogue(live, sessions, clock, guards)
  }

  /** Takes a POST with its body, as text and parsed. Undefined when it was answered at once. */
  post(visit: Visit, body: string, value: unknown): Promise<void> | undefined {
    if (isObject(value) && value.method === 'initialize')
      return this.#initialize(visit, { text: body, value })
    const session = sessionOf(visit, this.#sessions)
    if ('status' in session) return refuse(visit, session)
    session.touch()
    const isBatch = Array.isArray(value)
    if (isBatch && !allowsBatches(session.version)) {
      const why = `Invalid Request: version ${session.version} has no batches`
      return refuse(visit, refusal(400, null, INVALID_REQUEST, why))
    }
    const messages = readMessages(body, value)
    if (messages !== undefined) return this.#dialogue.take(visit, session, messages, isBatch)
    const why = 'Invalid Request: not JSON-RPC 2.0, or too large a batch'
    return refuse(visit, refusal(400, idOf(value), INVALID_REQUEST, why))
  }

  /** A session does not exist yet, so it counts for its tenant only. */
  #initialize(visit: Visit, message: Message): Promise<void> | undefined {
    const { limits, tenancies } = this.#guards
    const params = paramsOf(message.value)
    const fault = paramsFault('initialize', params) ?? tooMuchToSay(message.text, [params], ['params'])
    if (fault !== undefined) return refuse(visit, refusal(200, idOf(message.value), INVALID_PARAMS, fault))
    const { clientInfo } = params
    const { countsAs } = tenancies.of(visit.headers, clientInfo, this.#clock.now())
    const tooFast = limits.refusal(undefined, countsAs)
    if (tooFast === undefined) return initialize(visit, message, this.#sessions, this.#live)
    return refuse(visit, { status: 200, text: gatewayErrorText(idOf(message.value), tooFast, {}) })
  }

  /** Takes a GET: the client listens. */
  listen(visit: Visit): void {
    const session = sessionOf(visit, this.#sessions)
    if ('status' in session) return refuse(visit, session)
    session.touch()
    const lastEventId = visit.headers['last-event-id']
    if (!session.listen(visit.response, typeof lastEventId === 'string' ? lastEventId : undefined)) {
      return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Last-Event-ID'))
    }
    const { servers } = this.#live.current
    for (const server of servers.values()) for (const link of server.links.all(session)) link.listen()
  }

  /** Takes a DELETE: the client leaves. */
  async leave(visit: Visit): Promise<void> {
    const session = sessionOf(visit, this.#sessions)
    if ('status' in session) return refuse(visit, session)
    await this.#sessions.close(session)
    visit.response.writeHead(204).end()
  }
}

/** Takes the `initialize` of a client: a session begins, unless there is no room or its server does not answer. */
export async function initialize(
  visit: Visit,
  message: Message,
  sessions: Sessions,
  live: Live<GatewayGeneration>,
): Promise<void> {
  const { front, headers, client, response } = visit
  const { id } = message.value
  if (!isRequestId(id)) {
    return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Request: initialize needs an id'))
  }
  const said = paramsOf(message.value)
  const version = negotiate(said.protocolVersion)
  const hello = { ...said, protocolVersion: version }
  const principal = principalOf(headers)
  const full =
    sessions.greetingRefusal(client, principal, hello, headers) ?? sessions.refusal(client, principal)
  if (full !== undefined) return busy(visit, id, full)
  const limitMs = askedLimitMs({ inbound: headers, message })
  const session = sessions.draft({ front, headers, client, hello, version })
  let welcome: Welcome
  let begun = false
  try {
    welcome = await front.welcome(live.current, session, version, limitMs)
    begun = 'text' in welcome && sessions.add(session)
  } finally {
    if (!begun) await sessions.close(session)
  }
  if (begun && 'text' in welcome) {
    sendJson(response, 200, resultText(id, welcome.text), { 'mcp-session-id': session.id })
    return session.wrote(response)
  }
  const error =
    'error' in welcome ? welcome.error : gatewayError('shutting_down', 'the gateway is being stopped')
  if (error.reason === 'overloaded') return busy(visit, id, error)
  sendJson(response, 200, gatewayErrorText(id, error, { server: front.server }))
}

/** There is no room for one more session, here or at its server. */
function busy({ response, front }: Visit, id: RequestId, error: GatewayError): void {
  const { retryAfterMs = 5_000 } = error
  const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }
  sendJson(response, 503, gatewayErrorText(id, error, { server: front.server }), headers)
}

/** Codes of HTTP-level refusals, as the SDKs use them. */
const BAD_SESSION = -32000
const UNKNOWN_SESSION = -32001

/** Says how a client goes on: by the specification it begins a new session when it gets a 404. */
const OTHER_CREDENTIALS =
  'Session not found: it was opened with other credentials (Authorization, or headers that servers get); begin with initialize'

/**
 * The session that the headers of a request name. With other credentials than its own there is none: who has only its id
 * must not act with the credentials that servers get, and whose token was renewed begins another one.
 */
function sessionOf({ front, headers }: Visit, sessions: Sessions): Session | Refusal {
  const { 'mcp-session-id': id, 'mcp-protocol-version': version = ASSUMED_VERSION } = headers
  if (!isLegacyVersion(version)) {
    const named = typeof version === 'string' ? version.slice(0, 40) : 'given twice'
    return refusal(400, null, BAD_SESSION, `Bad Request: unsupported protocol version ${named}`)
  }
  if (typeof id !== 'string') {
    const why = 'Bad Request: the Mcp-Session-Id header is missing; begin with initialize'
    return refusal(400, null, BAD_SESSION, why)
  }
  const session = sessions.find(id)
  if (session === undefined || session.front.server !== front.server)
    return refusal(404, null, UNKNOWN_SESSION, 'Session not found')
  return sessions.isOf(session, headers) ? session : refusal(404, null, UNKNOWN_SESSION, OTHER_CREDENTIALS)
}
