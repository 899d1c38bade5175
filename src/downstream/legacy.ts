import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { Message, RequestId } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import {
  errorText,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  paramsOf,
  readMessages,
  resultText,
} from '../protocol/jsonrpc.ts'
import { allowsBatches, ASSUMED_VERSION, isLegacyVersion, negotiate } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { Dialogue } from './dialogue.ts'
import type { Front } from './front.ts'
import { sendJson } from './post-reply.ts'
import { gatewayErrorText } from './respond.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'

/** Codes of HTTP-level refusals, as the SDKs use them. */
const BAD_SESSION = -32000
const UNKNOWN_SESSION = -32001

/** One HTTP request of a legacy-era client, read as far as HTTP goes. */
export interface Visit {
  readonly front: Front
  readonly headers: IncomingHttpHeaders
  readonly response: ServerResponse
}

/** The 2025 era towards agents: sessions, batches, streams. The only place that knows downstream sessions. */
export class LegacyEndpoint {
  readonly #live: Live<GatewayGeneration>
  readonly #sessions: Sessions
  readonly #dialogue: Dialogue

  constructor(live: Live<GatewayGeneration>, sessions: Sessions, clock: Clock) {
    this.#live = live
    this.#sessions = sessions
    this.#dialogue = new Dialogue(live, sessions, clock)
  }

  /** Takes a POST with its body, as text and parsed. Undefined when it was answered at once. */
  post(visit: Visit, body: string, value: unknown): Promise<void> | undefined {
    if (isObject(value) && value.method === 'initialize')
      return this.#initialize(visit, { text: body, value })
    const session = this.#sessionOf(visit)
    if (session === undefined) return undefined
    session.touch()
    const isBatch = Array.isArray(value)
    if (isBatch && !allowsBatches(session.version)) {
      return refuse(visit, 400, INVALID_REQUEST, `Invalid Request: version ${session.version} has no batches`)
    }
    const messages = readMessages(body, value)
    if (messages !== undefined) return this.#dialogue.take(visit, session, messages, isBatch)
    return refuse(
      visit,
      400,
      INVALID_REQUEST,
      'Invalid Request: not JSON-RPC 2.0, or too large a batch',
      idOf(value),
    )
  }

  /** Takes a GET: the client listens. */
  listen(visit: Visit): void {
    const session = this.#sessionOf(visit)
    if (session === undefined) return
    session.touch()
    const lastEventId = visit.headers['last-event-id']
    if (!session.listen(visit.response, typeof lastEventId === 'string' ? lastEventId : undefined)) {
      return refuse(visit, 400, INVALID_REQUEST, 'Invalid Last-Event-ID')
    }
    const { servers } = this.#live.current
    for (const server of servers.values()) for (const link of server.links.all(session)) link.listen()
  }

  /** Takes a DELETE: the client leaves. */
  async leave(visit: Visit): Promise<void> {
    const session = this.#sessionOf(visit)
    if (session === undefined) return
    await this.#sessions.close(session)
    visit.response.writeHead(204).end()
  }

  async #initialize(visit: Visit, message: Message): Promise<void> {
    const { id } = message.value
    if (!isRequestId(id))
      return refuse(visit, 400, INVALID_REQUEST, 'Invalid Request: initialize needs an id')
    if (this.#sessions.full) {
      const error = gatewayError(
        'overloaded',
        `too many sessions (${this.#sessions.limits.max} of ${this.#sessions.limits.max})`,
      )
      return sendJson(visit.response, 503, gatewayErrorText(id, error, {}), { 'retry-after': '5' })
    }
    const hello = paramsOf(message.value)
    const version = negotiate(hello.protocolVersion)
    const { front, headers } = visit
    const session = this.#sessions.draft({
      front,
      headers,
      hello: { ...hello, protocolVersion: version },
      version,
    })
    const welcome = await visit.front.welcome(this.#live.current, session, version)
    if ('error' in welcome) {
      await this.#sessions.close(session)
      return sendJson(
        visit.response,
        200,
        gatewayErrorText(id, welcome.error, { server: visit.front.server }),
      )
    }
    this.#sessions.add(session)
    sendJson(visit.response, 200, resultText(id, welcome.text), { 'mcp-session-id': session.id })
  }

  /** The session that a request names; otherwise the refusal is sent, and undefined returned. */
  #sessionOf(visit: Visit): Session | undefined {
    const { 'mcp-session-id': id, 'mcp-protocol-version': version = ASSUMED_VERSION } = visit.headers
    if (!isLegacyVersion(version)) {
      refuse(
        visit,
        400,
        BAD_SESSION,
        `Bad Request: unsupported protocol version ${String(version).slice(0, 40)}`,
      )
      return undefined
    }
    if (typeof id !== 'string') {
      refuse(
        visit,
        400,
        BAD_SESSION,
        'Bad Request: the Mcp-Session-Id header is missing; begin with initialize',
      )
      return undefined
    }
    const session = this.#sessions.find(id)
    if (session !== undefined && session.front.server === visit.front.server) return session
    refuse(visit, 404, UNKNOWN_SESSION, 'Session not found')
    return undefined
  }
}

function refuse(
  { response }: Visit,
  status: number,
  code: number,
  message: string,
  id: RequestId | null = null,
) {
  sendJson(response, status, errorText(id, code, message))
  return undefined
}

function idOf(value: unknown): RequestId | null {
  return isObject(value) && isRequestId(value.id) ? value.id : null
}
