import type { Message } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import {
  idOf,
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  paramsOf,
  readMessages,
} from '../protocol/jsonrpc.ts'
import { paramsFault } from '../protocol/params-check.ts'
import { allowsBatches } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { Dialogue } from './dialogue.ts'
import type { Guards } from './guards.ts'
import { tooMuchToSay } from './hello.ts'
import { initialize } from './initialize.ts'
import { refusal, refuse } from './refusal.ts'
import { gatewayErrorText } from './respond.ts'
import { sessionOf } from './session-headers.ts'
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
