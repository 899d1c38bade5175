import { type Message, newRecord, type RequestId } from '../mesh/call.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { ownTurn } from '../mesh/turns.ts'
import { during, LARGE_TEXT } from '../mesh/work.ts'
import {
  errorText,
  INVALID_PARAMS,
  INVALID_REQUEST,
  kindOf,
  paramsOf,
  resultText,
} from '../protocol/jsonrpc.ts'
import { paramsFault } from '../protocol/params-check.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Guards } from './guards.ts'
import { PostReply } from './post-reply.ts'
import { gatewayErrorText, type Response } from './respond.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import type { Visit } from './visit.ts'

/** What the client of a session says, message by message, and what it gets back. */
export class Dialogue {
  readonly #live: Live<GatewayGeneration>
  readonly #sessions: Sessions
  readonly #clock: Clock
  readonly #guards: Guards

  constructor(live: Live<GatewayGeneration>, sessions: Sessions, clock: Clock, guards: Guards) {
    this.#live = live
    this.#sessions = sessions
    this.#clock = clock
    this.#guards = guards
  }

  /** Takes the messages of one POST: a single one, or a batch. */
  take(visit: Visit, session: Session, messages: readonly Message[], isBatch: boolean): Promise<void> {
    const reply = new PostReply(session, visit.response, this.#clock)
    const answers: Promise<Response>[] = []
    for (const message of messages) {
      if (kindOf(message.value) !== 'request') this.#oneWay(session, message)
      else answers.push(this.#request(visit, session, message, reply))
    }
    const [only] = answers
    if (only === undefined) return Promise.resolve(void visit.response.writeHead(202).end())
    // Most POSTs hold one request: the common way takes no more turns of the microtask queue than it must.
    if (!isBatch) return only.then((response) => this.#finish(session, reply, [response], false))
    return Promise.all(answers).then((responses) => this.#finish(session, reply, responses, true))
  }

  #finish(session: Session, reply: PostReply, responses: readonly Response[], isBatch: boolean): void {
    if (!responses.some(isLarge)) return this.#finishNow(session, reply, responses, isBatch)
    during('reply', () => this.#finishNow(session, reply, responses, isBatch))
  }

  #finishNow(session: Session, reply: PostReply, responses: readonly Response[], isBatch: boolean): void {
    session.touch()
    reply.finish(responses, isBatch)
    for (const { status } of responses) if (status === 404) void this.#sessions.close(session)
    this.#sessions.settle(session)
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
        const why =
          typeof params.reason === 'string' ? `cancelled: ${params.reason.slice(0, 200)}` : 'cancelled'
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

  #request(visit: Visit, session: Session, message: Message, reply: PostReply): Promise<Response> {
    const id = message.value.id as RequestId
    const { headers, front } = visit
    const now = this.#clock.now()
    const { limits, tenancies } = this.#guards
    const tenancy = tenancies.of(headers, session.hello.clientInfo, now, session.tenants)
    const tooFast = limits.refusal(session.id, tenancy.countsAs)
    const refusal =
      tooFast === undefined ? this.#refusal(session, message, id) : gatewayErrorText(id, tooFast, {})
    if (refusal !== undefined) return Promise.resolve({ text: refusal, status: 200 })
    const signal = new Cancellation()
    const lease = this.#live.enter()
    const record = newRecord(now)
    session.inFlight.set(id, signal)
    session.used = true
    const channelFor = (server: string) => reply.channelFor(server, record)
    const inquiry = { id, message, headers, caller: session, tenancy, channelFor, signal, record }
    const left = (response: Response) => {
      session.inFlight.delete(id)
      return response
    }
    const done = (response: Response) => {
      session.asked.end(record)
      lease.release()
      // A large answer is put on the wire in a turn of its own; the session is in use until then.
      return isLarge(response) ? ownTurn(session.client).then(() => left(response)) : left(response)
    }
    // A defect of ours has an answer, too: other requests of the same POST may go on.
    const broke = (cause: unknown) => done({ text: this.#guards.defect(id, cause), status: 200 })
    try {
      return front.request(lease.generation, inquiry).then(done, broke)
    } catch (cause) {
      return Promise.resolve(broke(cause))
    }
  }

  /** The answer to a request that goes no further. */
  #refusal(session: Session, { value }: Message, id: RequestId): string | undefined {
    if (value.method === 'ping') return resultText(id, '{}')
    if (session.inFlight.has(id)) {
      return errorText(id, INVALID_REQUEST, 'Invalid Request: a request with this id is still running')
    }
    const fault = paramsFault(value.method as string, paramsOf(value))
    if (fault !== undefined) return errorText(id, INVALID_PARAMS, fault)
    const { maxInFlight } = this.#sessions.limits
    if (session.inFlight.size < maxInFlight) return undefined
    const error = gatewayError(
      'overloaded',
      `too many calls in this session (${maxInFlight} of ${maxInFlight})`,
    )
    return gatewayErrorText(id, error, {})
  }
}

/** Nobody waits for the end of a message that has no answer. */
function ignore(): void {}

function isLarge({ text }: Response): boolean {
  return text.length >= LARGE_TEXT
}
