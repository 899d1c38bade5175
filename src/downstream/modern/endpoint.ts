import { newRecord, type Message } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import {
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  kindOf,
  METHOD_NOT_FOUND,
  paramsOf,
  requestText,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { SERVER_INFO_KEY } from '../../protocol/modern.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Server } from '../../registry/server.ts'
import type { Inquiry } from '../front.ts'
import type { Visit } from '../legacy.ts'
import { sendJson } from '../post-reply.ts'
import { gatewayErrorText, type Response } from '../respond.ts'
import {
  mirroredHeaders,
  readEnvelope,
  refusal,
  supportedVersions,
  type Envelope,
  type Refusal,
} from './envelope.ts'
import { Exchange } from './exchange.ts'
import { isMoreVerbose } from './levels.ts'
import { isList, ListCache } from './list-cache.ts'
import { Listening } from './listening.ts'
import { Parking } from './parking.ts'
import { CallerPool, type PooledCaller } from './pool.ts'
import { Post } from './post.ts'
import { readFilter, Subscription } from './subscriptions.ts'

/** Methods that this era did away with. */
const gone = new Set([
  'initialize',
  'ping',
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
])

/** Most `subscriptions/listen` streams at once. */
const MAX_LISTENING = 10_000

/** The 2026 era towards agents: every request speaks for itself, nothing is remembered between two of them. */
export class ModernEndpoint {
  readonly listening: Listening
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #pool: CallerPool
  readonly #parking: Parking
  readonly #lists: ListCache

  constructor(live: Live<GatewayGeneration>, clock: Clock) {
    this.#live = live
    this.#clock = clock
    this.#parking = new Parking(clock)
    this.#lists = new ListCache(clock)
    this.listening = new Listening(live, clock)
    this.#pool = new CallerPool(clock, (caller) => {
      for (const server of live.current.servers.values()) void server.links.drop(caller)
    })
  }

  /** Takes a POST that was found to be of this era, with its body as text and parsed. Undefined when it was answered at once. */
  post(visit: Visit, text: string, value: unknown): Promise<void> | undefined {
    if (!isObject(value))
      return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Request: expected one message'))
    if (kindOf(value) === 'notification') return void visit.response.writeHead(202).end()
    const message = { text, value }
    const envelope = readEnvelope(visit.headers, message)
    if ('status' in envelope) return refuse(visit, envelope)
    const { id, method } = envelope
    if (gone.has(method))
      return refuse(visit, refusal(404, id, METHOD_NOT_FOUND, `Method not found: ${method}`))
    const caller = this.#callerOf(visit, envelope)
    if (method === 'server/discover') return this.#discover(visit, envelope, caller)
    if (method === 'subscriptions/listen') return this.#listen(visit, envelope, caller, message)
    return this.#request(visit, envelope, caller, message)
  }

  close(): void {
    this.listening.end(() => true)
    this.#parking.closeAll()
    this.#pool.closeAll()
  }

  /** Clients share conversations with servers only if servers could not tell them apart. */
  #callerOf({ front, headers }: Visit, { clientInfo, capabilities }: Envelope): PooledCaller {
    const { servers } = this.#live.current
    const agent: Record<string, string> = {}
    if (front.server === undefined) for (const server of servers.values()) addShown(agent, server, headers)
    else addShown(agent, servers.get(front.server), headers)
    return this.#pool.of(clientInfo, capabilities, agent)
  }

  async #discover({ front, response }: Visit, { id }: Envelope, caller: PooledCaller): Promise<void> {
    const welcome = await front.welcome(this.#live.current, caller, LATEST_LEGACY)
    if ('error' in welcome)
      return sendJson(response, 200, gatewayErrorText(id, welcome.error, { server: front.server }))
    const { capabilities, instructions, serverInfo } = JSON.parse(welcome.text) as Record<string, unknown>
    const result = {
      resultType: 'complete',
      supportedVersions,
      capabilities: modernCapabilities(capabilities),
      ...(instructions === undefined ? {} : { instructions }),
      ttlMs: 0,
      cacheScope: 'private',
      _meta: { [SERVER_INFO_KEY]: serverInfo },
    }
    sendJson(response, 200, resultText(id, JSON.stringify(result)))
  }

  async #listen(visit: Visit, { id }: Envelope, caller: PooledCaller, { value }: Message): Promise<void> {
    const { front, response } = visit
    const welcome = await front.welcome(this.#live.current, caller, LATEST_LEGACY)
    if ('error' in welcome)
      return sendJson(response, 200, gatewayErrorText(id, welcome.error, { server: front.server }))
    // A client that has left already would never be heard to leave.
    if (response.destroyed) return
    const { capabilities } = JSON.parse(welcome.text) as { capabilities?: unknown }
    const filter = readFilter(paramsOf(value).notifications, isObject(capabilities) ? capabilities : {})
    if (filter === undefined)
      return refuse(visit, refusal(200, id, INVALID_PARAMS, 'Invalid notifications filter'))
    if (this.listening.size >= MAX_LISTENING) {
      return refuse(visit, refusal(200, id, -32603, `Subscription limit reached (${MAX_LISTENING})`))
    }
    let remove = () => {}
    const post = new Post(response, () => remove())
    const subscription = new Subscription(id, filter, post)
    subscription.acknowledge()
    if (subscription.isEmpty) return subscription.end()
    remove = this.listening.add(front, caller, subscription)
  }

  #request(
    visit: Visit,
    envelope: Envelope,
    caller: PooledCaller,
    message: Message,
  ): Promise<void> | undefined {
    const { id, method } = envelope
    const { _meta: meta, name, uri, requestState, inputResponses } = paramsOf(message.value)
    const target = `${visit.front.server ?? ''} ${method} ${String(name ?? uri)}`
    const progressToken = isObject(meta) ? meta.progressToken : undefined
    if (this.#parking.isOurs(requestState)) {
      const parked = this.#parking.take(
        requestState,
        (call) => call.target === target && call.caller === caller,
      )
      if (parked === undefined) {
        const why = { reason: 'invalid_request_state' }
        return refuse(visit, refusal(200, id, INVALID_PARAMS, 'Unknown, used or expired requestState', why))
      }
      parked.answer(message.text, isObject(inputResponses) ? inputResponses : {})
      this.#wait(visit, parked, envelope, progressToken)
      return undefined
    }
    const exchange = new Exchange(envelope, caller, target, this.#parking)
    this.#wait(visit, exchange, envelope, progressToken)
    return this.#run(visit, exchange, message)
  }

  #wait({ response }: Visit, exchange: Exchange, { id }: Envelope, progressToken: unknown): void {
    const turn = { id, progressToken, post: new Post(response, () => exchange.abandon(turn)) }
    exchange.begin(turn)
  }

  /** Sends the request on under ids of ours: the conversation with the server is not this client's alone. */
  #run({ front, headers }: Visit, exchange: Exchange, message: Message): Promise<void> {
    const { caller, signal } = exchange
    const { logLevel } = exchange.envelope
    const id = caller.mintId()
    const record = newRecord(this.#clock.now())
    const lease = this.#live.enter()
    caller.calls++
    const mirrored = mirroredHeaders(headers)
    const plain: Inquiry = {
      id,
      message: renamed(message, id),
      headers,
      caller,
      channelFor: () => exchange.channel(record, () => this.#clock.now()),
      signal,
      record,
    }
    const inquiry = mirrored === undefined ? plain : { ...plain, mirrored }
    const answer =
      logLevel === undefined
        ? this.#ask(lease.generation, front, inquiry)
        : this.#raiseLevel(inquiry, front, logLevel).then(() => front.request(lease.generation, inquiry))
    const done = () => {
      caller.calls--
      lease.release()
    }
    return answer.then(
      (response) => {
        done()
        exchange.end(response)
      },
      (cause: unknown) => {
        done()
        throw cause
      },
    )
  }

  /** Lists are asked for once for all who may share them, so none of these can cancel it for the others. */
  #ask(generation: GatewayGeneration, front: Visit['front'], inquiry: Inquiry): Promise<Response> {
    const { value } = inquiry.message
    const method = value.method as string
    if (!isList(method)) return front.request(generation, inquiry)
    const key = JSON.stringify([generation.hash, front.server, method, paramsOf(value).cursor])
    const shared = { ...inquiry, signal: new Cancellation() }
    return this.#lists.get(key, inquiry.caller.id, () => front.request(generation, shared))
  }

  /** A legacy server has one log level per conversation: the most verbose that anybody asked for. */
  async #raiseLevel(inquiry: Inquiry, front: Visit['front'], level: string): Promise<void> {
    const caller = inquiry.caller as PooledCaller
    const key = front.server ?? ''
    if (!isMoreVerbose(level, caller.levels.get(key))) return
    caller.levels.set(key, level)
    const id = caller.mintId()
    const value = { jsonrpc: '2.0', id, method: 'logging/setLevel', params: { level } }
    const message = { text: requestText(id, value.method, value.params), value }
    await front.request(this.#live.current, { ...inquiry, id, message, record: newRecord(this.#clock.now()) })
  }
}

/** Adds the headers of an agent that a server gets to see. */
function addShown(
  agent: Record<string, string>,
  server: Server | undefined,
  headers: Visit['headers'],
): void {
  if (server === undefined || server.config.type === 'stdio') return
  for (const name in server.config.forwardHeaders) {
    const value = headers[name]
    if (typeof value === 'string') agent[name] = value
  }
}

function refuse({ response }: Visit, { status, text }: Refusal): undefined {
  sendJson(response, status, text)
}

/** The request under another id, which is its progress token too. */
function renamed({ text, value }: Message, id: string): Message {
  const params = paramsOf(value)
  const meta = params._meta
  const named = replaceAt(text, ['id'], id)
  if (!isObject(meta) || meta.progressToken === undefined) return { text: named, value: { ...value, id } }
  return {
    text: replaceAt(named, ['params', '_meta', 'progressToken'], id),
    value: { ...value, id, params: { ...params, _meta: { ...meta, progressToken: id } } },
  }
}

/** Tasks of the legacy era are not those of this one. */
function modernCapabilities(capabilities: unknown): unknown {
  if (!isObject(capabilities)) return {}
  const { tasks: _, ...rest } = capabilities
  return rest
}
