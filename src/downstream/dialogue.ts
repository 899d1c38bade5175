import { newRecord, type Message, type RequestId } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { errorText, INVALID_REQUEST, kindOf, paramsOf, resultText } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Visit } from './legacy.ts'
import { PostReply } from './post-reply.ts'
import { gatewayErrorText, type Response } from './respond.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'

/** What the client of a session says, message by message, and what it gets back. */
export class Dialogue {
  readonly #live: Live<GatewayGeneration>
  readonly #sessions: Sessions
  readonly #clock: Clock

  constructor(live: Live<GatewayGeneration>, sessions: Sessions, clock: Clock) {
    this.#live = live
    this.#sessions = sessions
    this.#clock = clock
  }

  /** Takes the messages of one POST: a single one, or a batch. */
  async take(visit: Visit, session: Session, messages: readonly Message[], isBatch: boolean): Promise<void> {
    const requests = messages.filter(({ value }) => kindOf(value) === 'request')
    for (const message of messages) {
      if (kindOf(message.value) !== 'request') this.#oneWay(session, message)
    }
    if (requests.length === 0) return void visit.response.writeHead(202).end()
    const reply = new PostReply(session, visit.response, this.#clock)
    const responses = await Promise.all(requests.map((message) => this.#request(visit, session, message, reply)))
    session.touch()
    reply.finish(responses, isBatch)
    if (responses.some(({ status }) => status === 404)) await this.#sessions.close(session)
  }

  /** A notification, or the answer to a question: nothing comes back. */
  #oneWay(session: Session, message: Message): void {
    if (kindOf(message.value) === 'response') return void session.asked.answer(message).catch(ignore)
    const params = paramsOf(message.value)
    switch (message.value.method) {
      case 'notifications/initialized':
        return
      case 'notifications/cancelled': {
        const id = params.requestId
        const why = typeof params.reason === 'string' ? `cancelled: ${params.reason.slice(0, 200)}` : 'cancelled'
        return session.inFlight.get(id as RequestId)?.abort(gatewayError('cancelled', why))
      }
      case 'notifications/progress': {
        const progress = session.asked.progress(message)
        const bound = progress && this.#live.current.servers.get(progress.server)?.links.current(session)
        return void bound?.link.post(progress?.text ?? '').catch(ignore)
      }
      default:
        return session.front.notify(this.#live.current, session, message)
    }
  }

  async #request(visit: Visit, session: Session, message: Message, reply: PostReply): Promise<Response> {
    const id = message.value.id as RequestId
    if (message.value.method === 'ping') return { text: resultText(id, '{}'), status: 200 }
    if (session.inFlight.has(id)) {
      return { text: errorText(id, INVALID_REQUEST, 'Invalid Request: a request with this id is still running'), status: 200 }
    }
    const { maxInFlight } = this.#sessions.limits
    if (session.inFlight.size >= maxInFlight) {
      const error = gatewayError('overloaded', `too many calls in this session (${maxInFlight} of ${maxInFlight})`)
      return { text: gatewayErrorText(id, error, {}), status: 200 }
    }
    const controller = new AbortController()
    const lease = this.#live.enter()
    const record = newRecord(this.#clock.now())
    session.inFlight.set(id, controller)
    try {
      return await visit.front.request(lease.generation, {
        id,
        message,
        headers: visit.headers,
        caller: session,
        channelFor: (server) => reply.channelFor(server, record),
        signal: controller.signal,
        record,
      })
    } finally {
      session.inFlight.delete(id)
      lease.release()
    }
  }
}

/** Nobody waits for the end of a message that has no answer. */
function ignore(): void {}
