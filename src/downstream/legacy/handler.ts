import { type Message, newRecord, type Outcome, type Service } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Live } from '../../mesh/live.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { askedLimitMs } from '../../policies/deadline.ts'
import {
  errorText,
  idOf,
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  kindOf,
  paramsOf,
  readMessages,
  type RequestId,
} from '../../protocol/jsonrpc.ts'
import { withoutBaggage } from '../../protocol/baggage.ts'
import { paramsFault } from '../../protocol/lists.ts'
import {
  allowsBatches,
  ASSUMED_VERSION,
  isLegacyVersion,
  negotiate,
  onceGiven,
} from '../../protocol/versions.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { principalOf } from '../../access/caller.ts'
import { welcomeTo, type InboundRequest } from '../endpoint.ts'
import { isRounded, keyOf, underIdOf } from '../exact-id.ts'
import type { Guards } from '../limits/limits.ts'
import { tooMuchToSay } from '../initialize.ts'
import { PostReply, refusal, type Refusal, refuse, sendJson } from '../http/post-reply.ts'
import { gatewayErrorText, refusedFor, respond, type Response, takenBack } from '../respond.ts'
import { CallUnderWay, type Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import { senderOf } from '../limits/tarpit.ts'
import {
  answerListen,
  answerOwn,
  answerWhileThere,
  LISTEN,
  ownResult,
  type OwnRequest,
  sendOutcome,
} from '../own-answer.ts'

/** Handles agents of the legacy era, with sessions, batches and streams. */
export class LegacyHandler {
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

  knows(id: unknown): boolean {
    return typeof id === 'string' && this.#sessions.find(id) !== undefined
  }

  /** Handles a POST, given its body as text and parsed. Returns undefined when the answer was sent at once. */
  post(incoming: InboundRequest, body: string, value: unknown): Promise<void> | undefined {
    if (isObject(value) && value.method === 'initialize')
      return this.#initialize(incoming, { text: body, value })
    const session = sessionOf(incoming, this.#sessions)
    if ('status' in session) return refuse(incoming, session)
    session.touch()
    const isBatch = Array.isArray(value)
    if (isBatch && !allowsBatches(session.version)) {
      const why = `Invalid Request: version ${session.version} has no batches`
      return refuse(incoming, refusal(400, null, INVALID_REQUEST, why))
    }
    const messages = readMessages(body, value)
    const strange = messages?.find(({ value }) => isWithoutId(value))
    if (strange !== undefined) {
      const method = String(strange.value.method).slice(0, 100)
      const fault = `Invalid Request: ${method} needs an id; only notifications/… have none`
      return refuse(incoming, refusal(400, null, INVALID_REQUEST, fault))
    }
    if (messages !== undefined) return this.#dialogue.take(incoming, session, messages, isBatch)
    const why = 'Invalid Request: not JSON-RPC 2.0, or too large a batch'
    return refuse(incoming, refusal(400, idOf(value), INVALID_REQUEST, why))
  }

  /**
   * Begins a session, unless the tenant's requests come too fast. No session exists yet, so only the tenant's limit
   * applies.
   */
  #initialize(incoming: InboundRequest, message: Message): Promise<void> | undefined {
    const { limits, tarpit, tenancies } = this.#guards
    const params = paramsOf(message.value)
    const fault = paramsFault('initialize', params) ?? tooMuchToSay(message.text, [params], ['params'])
    if (fault !== undefined) return refuse(incoming, refusal(200, idOf(message.value), INVALID_PARAMS, fault))
    const { clientInfo } = params
    const now = this.#clock.now()
    const tenancy = tenancies.of(incoming.headers, clientInfo, now)
    const tooFast = limits.refusal(undefined, tenancy.countsAs)
    if (tooFast === undefined)
      return initialize(incoming, message, this.#sessions, this.#live, { tenancy, now })
    const refused = { status: 200, text: gatewayErrorText(idOf(message.value), tooFast, {}) }
    const pause = tarpit.hold(senderOf(incoming.client, tenancy), now, tooFast.retryAfterMs)
    return pause === undefined ? refuse(incoming, refused) : pause.then(() => refuse(incoming, refused))
  }

  /** Handles a GET, by which the client opens or resumes an event stream. */
  listen(incoming: InboundRequest): Promise<void> | undefined {
    const session = sessionOf(incoming, this.#sessions)
    if ('status' in session) return refuse(incoming, session)
    session.touch()
    const { headers, response } = incoming
    const request = (): OwnRequest => {
      const now = this.#clock.now()
      const { clientInfo } = session.initializeParams
      const tenancy = this.#guards.tenancies.of(headers, clientInfo, now, session.tenants)
      const value = { jsonrpc: '2.0', id: LISTEN, method: LISTEN }
      const message = { text: JSON.stringify(value), value }
      return { incoming, id: LISTEN, message, caller: session, tenancy, now }
    }
    const wrote = () => session.wrote(response)
    const begin = (shift: number) => this.#listen(incoming, session, shift)
    return answerListen(this.#live.current, incoming, request, wrote, begin)
  }

  #listen(incoming: InboundRequest, session: Session, shift: number): undefined {
    const { 'last-event-id': id } = incoming.headers
    const lastEventId = typeof id === 'string' ? id : undefined
    const outcome = session.listen(incoming.response, lastEventId, shift)
    if (outcome === 'unknown')
      return refuse(incoming, refusal(400, null, INVALID_REQUEST, 'Invalid Last-Event-ID'))
    // With status 405 the official clients stop resuming a stream that ended without an answer.
    if (outcome === 'over')
      return refuse(
        incoming,
        refusal(405, null, INVALID_REQUEST, 'The stream is over: its request was cancelled'),
      )
    const { servers } = this.#live.current
    for (const server of servers.values())
      for (const upstreamSession of server.upstreamSessions.all(session)) upstreamSession.listen()
  }

  /** Handles a DELETE, by which the client ends its session. */
  async leave(incoming: InboundRequest): Promise<void> {
    const session = sessionOf(incoming, this.#sessions)
    if ('status' in session) return refuse(incoming, session)
    await this.#sessions.close(session)
    incoming.response.writeHead(204).end()
  }
}

/** Handles an `initialize`: begins a session. Sends an error when a quota has no room or the server does not answer. */
async function initialize(
  incoming: InboundRequest,
  message: Message,
  sessions: Sessions,
  live: Live<GatewayGeneration>,
  whose: Pick<OwnRequest, 'tenancy' | 'now'>,
): Promise<void> {
  const { endpoint, headers, client, response } = incoming
  const { id } = message.value
  if (!isRequestId(id)) {
    return refuse(incoming, refusal(400, null, INVALID_REQUEST, 'Invalid Request: initialize needs an id'))
  }
  // Removes baggage, because servers get the params later and some servers must not see baggage.
  const said = paramsOf(withoutBaggage(message).value)
  const version = negotiate(said.protocolVersion)
  const initializeParams = { ...said, protocolVersion: version }
  const principal = principalOf(headers)
  const full =
    sessions.initializeRefusal(client, principal, initializeParams, headers) ??
    sessions.refusal(client, principal)
  if (full !== undefined) return busy(incoming, id, full)
  const limitMs = askedLimitMs({ inbound: headers, message })
  const session = sessions.draft({ endpoint, headers, client, initializeParams, version })
  let hasBegun = false
  const begin: Service = async () => {
    const welcome = await welcomeTo(endpoint, live, session, { version, limitMs })
    if ('error' in welcome) return { kind: 'failed', error: welcome.error }
    if (welcome.version !== undefined) session.agreeOn(welcome.version)
    hasBegun = sessions.add(session)
    if (hasBegun) return ownResult(id, welcome.text)
    return { kind: 'failed', error: gatewayError('shutting_down', 'the gateway is being stopped') }
  }
  let outcome: Outcome | undefined
  try {
    const request = { incoming, id, message, caller: session, ...whose }
    outcome = await answerWhileThere(live.current, request, begin, response)
  } finally {
    // Closes the session when a fault drops the answer or the client has disconnected: the client does not know the
    // session's id.
    hasBegun &&= outcome?.kind === 'answered' && !response.destroyed
    if (!hasBegun) await sessions.close(session)
  }
  if (outcome.kind !== 'answered' && outcome.error.reason === 'overloaded')
    return busy(incoming, id, outcome.error)
  sendOutcome(response, id, outcome, endpoint.server, hasBegun ? { 'mcp-session-id': session.id } : {})
  session.wrote(response)
}

/** Refuses a session because a quota of the gateway or of the server has no room. */
function busy({ response, endpoint }: InboundRequest, id: RequestId, error: GatewayError): void {
  const { retryAfterMs = 5_000 } = error
  const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }
  sendJson(response, 503, gatewayErrorText(id, error, { server: endpoint.server }), headers)
}

/** Error codes for requests with a bad session, the same as in the MCP SDKs. */
const BAD_SESSION = -32000
const UNKNOWN_SESSION = -32001

/** The message of a 404 for other credentials. By the specification, a client begins a new session after a 404. */
const OTHER_CREDENTIALS =
  'Session not found: it was opened with other credentials (Authorization, or headers that servers get); begin with initialize'

/**
 * Returns the session named by the headers, or a refusal. Refuses a request with other credentials than the session's:
 * knowing only the id must not give access. A client with a renewed token must begin a new session.
 */
function sessionOf({ endpoint, headers }: InboundRequest, sessions: Sessions): Session | Refusal {
  const { 'mcp-session-id': id, 'mcp-protocol-version': version = ASSUMED_VERSION } = headers
  if (typeof version !== 'string' || !isLegacyVersion(onceGiven(version))) {
    const why = `Bad Request: unsupported protocol version ${String(version).slice(0, 40)}`
    return refusal(400, null, BAD_SESSION, why)
  }
  if (typeof id !== 'string') {
    const why = 'Bad Request: the Mcp-Session-Id header is missing; begin with initialize'
    return refusal(400, null, BAD_SESSION, why)
  }
  const session = sessions.find(onceGiven(id))
  if (session === undefined || session.endpoint.server !== endpoint.server)
    return refusal(404, null, UNKNOWN_SESSION, 'Session not found')
  return sessions.isOf(session, headers) ? session : refusal(404, null, UNKNOWN_SESSION, OTHER_CREDENTIALS)
}

/** A message of a POST, with its arrival time and the POST's reply. */
interface Taken {
  readonly message: Message
  readonly now: Millis
  readonly reply: PostReply
}

/** Handles the messages of a session's client one by one, and replies to them. */
class Dialogue {
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

  /** Handles the messages of a POST: a single message or a batch. */
  take(
    incoming: InboundRequest,
    session: Session,
    messages: readonly Message[],
    isBatch: boolean,
  ): Promise<void> {
    const reply = new PostReply(session, incoming.response, this.#clock, isBatch)
    const now = this.#clock.now()
    const answers: Promise<Response>[] = []
    let tooFast: GatewayError | undefined
    let leftOut = 0
    for (const message of messages) {
      if (kindOf(message.value) === 'request') {
        const answer = this.#request(incoming, session, { message, now, reply })
        const isExact = !isRounded(message.value.id)
        answers.push(isExact ? answer : answer.then((response) => underIdOf(message, response)))
      } else {
        const error = this.#oneWay(incoming, session, { message, now })
        if (error !== undefined) leftOut++
        tooFast ??= error
      }
    }
    const [only] = answers
    if (only === undefined) {
      const isAll = leftOut === messages.length
      return this.#acknowledge(incoming, session, isAll ? tooFast : undefined, now)
    }
    // Handles the common POST with a single request separately, because this path takes fewer microtasks.
    if (!isBatch) return only.then((response) => this.#inTime(session, { reply, now }, [response]))
    // The POST already counts as one call, so only the further requests are added.
    const { calls } = this.#guards.quotas
    const more = answers.length - 1
    calls.take(session.client, more)
    return Promise.all(answers)
      .finally(() => calls.release(session.client, more))
      .then((responses) => this.#inTime(session, { reply, now }, responses))
  }

  /** Answers a POST without requests: accepts the POST, or refuses it as a whole when its messages come too fast. */
  #acknowledge(
    { response }: InboundRequest,
    session: Session,
    tooFast: GatewayError | undefined,
    now: Millis,
  ): Promise<void> {
    if (tooFast === undefined) return Promise.resolve(void response.writeHead(202).end())
    const { retryAfterMs = 1_000 } = tooFast
    const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }
    const refuse = () => sendJson(response, 429, gatewayErrorText(null, tooFast, {}), headers)
    return (this.#guards.tarpit.hold(session.id, now, retryAfterMs) ?? Promise.resolve()).then(refuse)
  }

  /** Sends the responses of a POST; delays a rejection if the tarpit says so. */
  #inTime(
    session: Session,
    { reply, now }: Pick<Taken, 'reply' | 'now'>,
    responses: readonly Response[],
  ): Promise<void> | void {
    const retryAfterMs = retryAfterOf(responses)
    if (retryAfterMs === undefined) return this.#finish(session, reply, responses)
    const pause = this.#guards.tarpit.hold(session.id, now, retryAfterMs)
    if (pause === undefined) return this.#finish(session, reply, responses)
    return pause.then(() => this.#finish(session, reply, responses))
  }

  #finish(session: Session, reply: PostReply, responses: readonly Response[]): Promise<void> | void {
    session.touch()
    const takesLong = responses.some((response) => reply.takesLong(response))
    const finishing = takesLong ? during('reply', () => reply.finish(responses)) : reply.finish(responses)
    if (finishing === undefined) return this.#settle(session, responses)
    return finishing.then(() => this.#settle(session, responses))
  }

  #settle(session: Session, responses: readonly Response[]): void {
    for (const { status } of responses) if (status === 404) void this.#sessions.close(session)
    this.#sessions.settle(session)
  }

  /**
   * Handles a notification or an answer to a question. Returns an error when notifications come too fast; undefined
   * otherwise.
   */
  #oneWay(
    { headers }: InboundRequest,
    session: Session,
    { message, now }: Pick<Taken, 'message' | 'now'>,
  ): GatewayError | undefined {
    // Does not wait until the answer is passed on, because the client gets no reply to it.
    if (kindOf(message.value) === 'response') return void session.asked.answer(message).catch(ignore)
    const { method } = message.value
    const params = paramsOf(message.value)
    if (method === 'notifications/initialized') return undefined
    if (method === 'notifications/cancelled') {
      const why =
        typeof params.reason === 'string' ? `cancelled: ${params.reason.slice(0, 200)}` : 'cancelled'
      const cancelled = keyOf(params.requestId as RequestId, message, ['params', 'requestId'])
      return void session.inFlight.get(cancelled)?.takeBack(gatewayError('cancelled', why))
    }
    const { limits, tenancies } = this.#guards
    const tenancy = tenancies.of(headers, session.initializeParams.clientInfo, now, session.tenants)
    const tooFast = limits.refusal(session.id, tenancy.countsAs)
    if (tooFast !== undefined) return tooFast
    if (method !== 'notifications/progress')
      return void session.endpoint.notify(this.#live.current, session, message)
    const progress = session.asked.progress(message)
    if (progress === undefined) return undefined
    const sessions = this.#live.current.servers.get(progress.server)?.upstreamSessions
    const asking = sessions?.current(session)?.upstreamSession
    if (asking !== undefined) sessions?.notify(session, { ...message, text: progress.text }, asking)
    return undefined
  }

  #request(incoming: InboundRequest, session: Session, { message, now, reply }: Taken): Promise<Response> {
    session.used = true
    const id = message.value.id as RequestId
    const { headers, endpoint } = incoming
    const { limits, quotas, tenancies } = this.#guards
    const tenancy = tenancies.of(headers, session.initializeParams.clientInfo, now, session.tenants)
    const tooFast = limits.refusal(session.id, tenancy.countsAs)
    if (tooFast !== undefined) return Promise.resolve(refusedFor(id, tooFast))
    if (message.value.method === 'ping')
      return this.#ping({ incoming, id, message, caller: session, tenancy, now }, session)
    const refusal = this.#refusal(session, message, id)
    if (refusal !== undefined) return Promise.resolve({ text: refusal, status: 200 })
    const counted = quotas.tenantCalls.begin({ client: session.client, tenant: tenancy.countsAs })
    // Skips the tarpit for this refusal: a delayed refusal would use one of the places kept free.
    if (typeof counted === 'object')
      return Promise.resolve({ text: gatewayErrorText(id, counted, {}), status: 200 })
    const signal = new CallUnderWay()
    const lease = this.#live.enter()
    const record = newRecord(now)
    reply.watch(record)
    const key = keyOf(id, message)
    session.inFlight.set(key, signal)
    const channelFor = (server: string) => reply.channelFor(server, record)
    const request = { id, message, headers, caller: session, tenancy, channelFor, signal, record }
    const left = (response: Response) => {
      session.inFlight.delete(key)
      return response
    }
    const done = (answer: Response) => {
      const response = signal.isTakenBack ? takenBack(answer) : answer
      counted?.()
      session.ended(record)
      lease.release()
      // Writes a large answer in a separate turn; the session counts as in use until then.
      if (!reply.takesLong(response)) return left(response)
      return ownTurn(session.client).then(() => left(during('reply', () => reply.ready(response))))
    }
    // Answers after an internal error too, so that other requests of the POST continue.
    const broke = (cause: unknown) => done({ text: this.#guards.defect(id, cause), status: 200 })
    try {
      return endpoint.request(lease.generation, request).then(done, broke)
    } catch (cause) {
      return Promise.resolve(broke(cause))
    }
  }

  /** Answers a ping. While a fault delays the answer, the client can cancel the ping. */
  #ping(request: OwnRequest, session: Session): Promise<Response> {
    const { id, message } = request
    const { server } = session.endpoint
    const generation = this.#live.current
    const key = keyOf(id, message)
    const signal = new CallUnderWay()
    const mayBeHeld =
      generation.clientFaults(server ?? '', 'ping') !== undefined && !session.inFlight.has(key)
    if (mayBeHeld) session.inFlight.set(key, signal)
    const pong: Service = () => Promise.resolve(ownResult(id, '{}'))
    return answerOwn(generation, request, pong, { signal }).then((outcome) => {
      if (mayBeHeld) session.inFlight.delete(key)
      const response = respond(id, outcome, { server })
      return signal.isTakenBack ? takenBack(response) : response
    })
  }

  #refusal(session: Session, message: Message, id: RequestId): string | undefined {
    const { value } = message
    // Refuses `initialize` in a batch.
    if (value.method === 'initialize')
      return errorText(
        id,
        INVALID_REQUEST,
        'Invalid Request: initialize begins a session, so it must not be part of a batch',
      )
    if (session.inFlight.has(keyOf(id, message))) {
      return errorText(id, INVALID_REQUEST, 'Invalid Request: a request with this id is still running')
    }
    const fault = paramsFault(value.method as string, paramsOf(value))
    if (fault !== undefined) return errorText(id, INVALID_PARAMS, fault)
    const { maxInFlight } = this.#sessions.limits
    if (session.inFlight.size < maxInFlight) return undefined
    const error = gatewayError(
      'overloaded',
      `too many calls in this session (limit ${maxInFlight}, gateway.sessions.maxInFlight)`,
    )
    return gatewayErrorText(id, error, {})
  }
}

/**
 * True when a request has no id. Without this check, such a request would count as a notification and bypass all checks
 * of requests.
 */
function isWithoutId({ id, method }: Message['value']): boolean {
  return id === undefined && typeof method === 'string' && !method.startsWith('notifications/')
}

/**
 * Returns the shortest retry time of these rejections, in milliseconds; undefined when any response is not a rejection.
 */
function retryAfterOf(responses: readonly Response[]): Millis | undefined {
  let least: Millis | undefined
  for (const { retryAfterMs } of responses) {
    if (retryAfterMs === undefined) return undefined
    least = Math.min(least ?? retryAfterMs, retryAfterMs)
  }
  return least
}
