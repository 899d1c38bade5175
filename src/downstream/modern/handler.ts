import { createHash } from 'node:crypto'
import type { Message, RequestId, Service } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { type GatewayError, isGatewayError } from '../../mesh/errors.ts'
import type { Live } from '../../mesh/live.ts'
import { askedLimitMs } from '../../policies/deadline.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import {
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  kindOf,
  METHOD_NOT_FOUND,
  paramsOf,
} from '../../protocol/jsonrpc.ts'
import { isListChange, answersFault, paramsFault } from '../../protocol/lists.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  SERVER_INFO_KEY,
  LATEST_LEGACY,
} from '../../protocol/versions.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { acceptedBy } from '../accept.ts'
import { sessionlessPrincipalOf, type Servers, shownHeaders, type Tenancy } from '../../access/caller.ts'
import { welcomeTo, type InboundRequest } from '../endpoint.ts'
import type { Guards } from '../limits/limits.ts'
import { tooMuchToSay } from '../initialize.ts'
import { refusal, refuse, sendJson } from '../http/post-reply.ts'
import { gatewayErrorText, refusedFor } from '../respond.ts'
import { answerListen, answerWhileThere, LISTEN, ownResult, sendOutcome } from '../own-answer.ts'
import { senderOf } from '../limits/tarpit.ts'
import { type Envelope, readEnvelope, supportedVersions } from './envelope.ts'
import { ModernCall } from './call.ts'
import { Listening } from './listening.ts'
import { PendingInputStore } from './pending-inputs.ts'
import { CallerPool, type PooledCaller } from './pool.ts'
import { Post } from './post.ts'
import { Relay } from './relay.ts'
import { readFilter, Subscription, weightOf } from './subscriptions.ts'

/** Methods of the legacy era that the modern era does not have. */
const gone = new Set([
  'initialize',
  'ping',
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
  'tasks/list',
  'tasks/result',
])

/** The error message for a client that wants to listen but accepts only JSON. */
const NO_EVENTS = 'Not Acceptable: the Accept header must name text/event-stream'

/** The caller and the tenant that a request counts for. */
interface Sender {
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
}

/**
 * Handles agents of the modern era. These agents have no sessions: each request contains all facts about its client.
 */
export class ModernHandler {
  readonly listening: Listening
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #pool: CallerPool
  readonly #pendingInputs: PendingInputStore<ModernCall>
  readonly #relay: Relay
  readonly #guards: Guards

  constructor(live: Live<GatewayGeneration>, clock: Clock, guards: Guards) {
    this.#live = live
    this.#clock = clock
    this.#guards = guards
    this.#pendingInputs = new PendingInputStore(clock, guards.quotas)
    this.#relay = new Relay(live, clock, guards)
    this.listening = new Listening(live, clock)
    const drop = (caller: PooledCaller) => {
      this.listening.endOf(caller)
      for (const server of live.current.servers.values()) void server.upstreamSessions.drop(caller)
    }
    this.#pool = new CallerPool(
      clock,
      guards.quotas.callers,
      guards.quotas.initializeParams,
      drop,
      (server, message) => {
        if (isListChange(message)) this.forgetLists(server)
      },
    )
  }

  /** True when any call waits for its agent. */
  get isAsking(): boolean {
    return this.#pendingInputs.size > 0
  }

  /** True when a request resumes a call that waits for its agent. */
  goesOn(value: unknown): boolean {
    return isObject(value) && this.#pendingInputs.has(paramsOf(value).requestState)
  }

  /**
   * Handles a POST of this era, given its body as text and parsed. Returns undefined when the answer was sent at once.
   */
  post(incoming: InboundRequest, text: string, value: unknown): Promise<void> | undefined {
    // Ignores a request on a closed connection, because closing cancels. The connection would emit no further close
    // event.
    if (incoming.response.destroyed) return undefined
    if (!isObject(value))
      return refuse(incoming, refusal(400, null, INVALID_REQUEST, 'Invalid Request: expected one message'))
    if (kindOf(value) === 'notification') return void incoming.response.writeHead(202).end()
    const message = { text, value }
    const envelope = readEnvelope(incoming.headers, message)
    if ('status' in envelope) return refuse(incoming, envelope)
    const { id, method, clientInfo, capabilities } = envelope
    if (gone.has(method))
      return refuse(incoming, refusal(404, id, METHOD_NOT_FOUND, `Method not found: ${method}`))
    const fault =
      paramsFault(method, paramsOf(value)) ??
      tooMuchToSay(
        text,
        [clientInfo, capabilities],
        ['params', '_meta', CLIENT_INFO_KEY],
        ['params', '_meta', CLIENT_CAPABILITIES_KEY],
      )
    if (fault !== undefined) return refuse(incoming, refusal(200, id, INVALID_PARAMS, fault))
    const { limits, tarpit, tenancies, unread } = this.#guards
    const now = this.#clock.now()
    const tenancy = tenancies.of(incoming.headers, clientInfo, now)
    const tooFast = limits.refusal(undefined, tenancy.countsAs)
    if (tooFast !== undefined) {
      const refused = refusedFor(id, tooFast)
      const pause = tarpit.hold(senderOf(incoming.client, tenancy), now, refused.retryAfterMs)
      return pause === undefined ? refuse(incoming, refused) : pause.then(() => refuse(incoming, refused))
    }
    const caller = this.#callerOf(incoming, envelope, tenancy.countsAs)
    if (isGatewayError(caller))
      return refuse(incoming, { status: 200, text: gatewayErrorText(id, caller, {}) })
    if (method === 'server/discover')
      return inUse(
        caller,
        this.#discover(incoming, id, message, { caller, tenancy }).then(() =>
          unread.wrote(incoming.response),
        ),
      )
    if (method === LISTEN) {
      if (!acceptedBy(incoming.headers.accept).events)
        return refuse(incoming, refusal(406, id, INVALID_REQUEST, NO_EVENTS))
      const request = () => ({ incoming, id, message, caller, tenancy, now })
      const wrote = () => unread.wrote(incoming.response)
      const begin = () => inUse(caller, this.#listen(incoming, envelope, { caller, tenancy }, message))
      return answerListen(this.#live.current, incoming, request, wrote, begin)
    }
    return this.#request(incoming, envelope, { caller, tenancy }, message)
  }

  /** Drops the cached lists of `server`, or of all servers when undefined, because the lists may have changed. */
  forgetLists(server?: string): void {
    this.#relay.forgetLists(server)
  }

  close(): void {
    this.listening.end(() => true)
    this.#pendingInputs.closeAll()
    this.#relay.close()
    this.#pool.closeAll()
  }

  /**
   * Returns the caller of a request. Clients share a caller, and its upstream sessions, only if their headers,
   * capabilities and credentials are equal.
   */
  #callerOf(
    incoming: InboundRequest,
    { clientInfo, capabilities }: Envelope,
    tenant: string,
    servers: Servers = this.#live.current.servers,
  ): PooledCaller | GatewayError {
    const shown = shownHeaders(incoming, servers)
    const principal = sessionlessPrincipalOf(incoming.headers)
    return this.#pool.of(incoming.client, clientInfo, capabilities, shown, principal, tenant)
  }

  /** Answers `server/discover`: the facts that legacy clients get from `initialize`. */
  async #discover(
    incoming: InboundRequest,
    id: RequestId,
    message: Message,
    { caller, tenancy }: Sender,
  ): Promise<void> {
    const { endpoint, headers, response } = incoming
    const limitMs = askedLimitMs({ inbound: headers, message })
    const introduce: Service = async () => {
      const welcome = await welcomeTo(endpoint, this.#live, caller, { version: LATEST_LEGACY, limitMs })
      if ('error' in welcome) return { kind: 'failed', error: welcome.error }
      return ownResult(id, discovered(welcome.text))
    }
    const request = { incoming, id, message, caller, tenancy, now: this.#clock.now() }
    const outcome = await answerWhileThere(this.#live.current, request, introduce, response)
    sendOutcome(response, id, outcome, endpoint.server)
  }

  async #listen(incoming: InboundRequest, { id }: Envelope, sender: Sender, message: Message): Promise<void> {
    const { caller, tenancy } = sender
    const { endpoint, headers, client, response } = incoming
    const limitMs = askedLimitMs({ inbound: headers, message })
    const welcome = await welcomeTo(endpoint, this.#live, caller, { version: LATEST_LEGACY, limitMs })
    if ('error' in welcome)
      return sendJson(response, 200, gatewayErrorText(id, welcome.error, { server: endpoint.server }))
    // Stops here for a disconnected client, because its response emits no further close event.
    if (response.destroyed) return
    const { capabilities } = parseExactly(welcome.text) as { capabilities?: unknown }
    const filter = readFilter(
      paramsOf(message.value).notifications,
      isObject(capabilities) ? capabilities : {},
    )
    if (filter === undefined)
      return refuse(incoming, refusal(200, id, INVALID_PARAMS, 'Invalid notifications filter'))
    const { listens, tenantListens } = this.#guards.quotas
    const weight = weightOf(filter)
    const counted =
      listens.refusal(client, weight) ?? tenantListens.begin({ client, tenant: tenancy.countsAs }, weight)
    if (isGatewayError(counted))
      return refuse(incoming, {
        status: 200,
        text: gatewayErrorText(id, counted, { server: endpoint.server }),
      })
    let remove = () => {}
    const post = new Post(response, { guards: this.#guards, onGone: () => remove() })
    const subscription = new Subscription(id, filter, post)
    subscription.acknowledge()
    listens.take(client, weight)
    const over = () => {
      listens.release(client, weight)
      counted?.()
    }
    if (subscription.isEmpty) {
      over()
      return subscription.end()
    }
    remove = this.listening.add({ endpoint, caller, tenancy, subscription, over })
  }

  #request(
    incoming: InboundRequest,
    envelope: Envelope,
    { caller, tenancy }: Sender,
    message: Message,
  ): Promise<void> | undefined {
    const { id, method } = envelope
    const { _meta: meta, name, uri, requestState, inputResponses } = paramsOf(message.value)
    // `name` and `uri` are strings if present: `readEnvelope` has checked them.
    const target = shortened(`${incoming.endpoint.server ?? ''} ${method} ${(name ?? uri ?? '') as string}`)
    const progressToken = isObject(meta) ? meta.progressToken : undefined
    if (this.#pendingInputs.isOurs(requestState)) {
      // Checks the answers before taking the call, because a state is valid only once.
      const fault = answersFault(inputResponses)
      if (fault !== undefined) return refuse(incoming, refusal(200, id, INVALID_PARAMS, fault))
      const pending = this.#pendingInputs.take(
        requestState,
        // Compares with the servers of the call's start too, because a reload may have changed which headers tell
        // callers apart.
        (call) =>
          call.target === target &&
          (call.caller === caller ||
            call.caller === this.#callerOf(incoming, envelope, tenancy.countsAs, call.servers)),
      )
      if (pending === undefined) {
        const why = { reason: 'invalid_request_state' }
        return refuse(
          incoming,
          refusal(200, id, INVALID_PARAMS, 'Unknown, used or expired requestState', why),
        )
      }
      pending.answer(message.text, isObject(inputResponses) ? inputResponses : {})
      this.#wait(incoming, pending, envelope, progressToken)
      return undefined
    }
    const { calls, tenantCalls } = this.#guards.quotas
    const counted = tenantCalls.begin({ client: incoming.client, tenant: tenancy.countsAs })
    // Skips the tarpit for this refusal: a delayed refusal would use one of the places kept free.
    if (isGatewayError(counted))
      return refuse(incoming, { status: 200, text: gatewayErrorText(id, counted, {}) })
    const modernCall = new ModernCall(
      envelope,
      caller,
      this.#live.current.servers,
      { client: incoming.client, tenant: tenancy.countsAs },
      target,
      { pendingInputs: this.#pendingInputs, calls },
    )
    this.#wait(incoming, modernCall, envelope, progressToken)
    const ending = this.#relay.run(incoming, modernCall, tenancy, message)
    return counted === undefined ? ending : ending.finally(counted)
  }

  #wait(
    { response }: InboundRequest,
    modernCall: ModernCall,
    { id }: Envelope,
    progressToken: unknown,
  ): void {
    const onGone = () => modernCall.abandon(turn)
    const post = new Post(response, { guards: this.#guards, onGone })
    const turn = { id, progressToken, post }
    modernCall.begin(turn)
  }
}

/**
 * Counts one more call of the caller until `ending` settles, so that the pool does not drop the caller. Returns
 * `ending`.
 */
function inUse(caller: PooledCaller, ending: Promise<void>): Promise<void> {
  caller.calls++
  return ending.finally(() => caller.calls--)
}

/**
 * Longest target (server, method, and name or URI) stored as text, in characters; a longer target is stored as a
 * digest.
 */
const LONG_TARGET = 1_024

function shortened(target: string): string {
  return target.length <= LONG_TARGET ? target : createHash('sha256').update(target).digest('base64url')
}

function discovered(initializeResult: string): string {
  const { capabilities, instructions, serverInfo } = parseExactly(initializeResult) as Record<string, unknown>
  return JSON.stringify({
    resultType: 'complete',
    supportedVersions,
    capabilities: modernCapabilities(capabilities),
    ...(instructions === undefined ? {} : { instructions }),
    ttlMs: 0,
    cacheScope: 'private',
    _meta: { [SERVER_INFO_KEY]: serverInfo },
  })
}

/**
 * Returns capabilities for a modern client, without `tasks`: tasks of the legacy era differ from tasks of the modern
 * era.
 */
function modernCapabilities(capabilities: unknown): unknown {
  if (!isObject(capabilities)) return {}
  const { tasks: _, ...rest } = capabilities
  return rest
}
