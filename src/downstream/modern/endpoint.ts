import { createHash } from 'node:crypto'
import type { Message } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { type GatewayError, isGatewayError } from '../../mesh/errors.ts'
import type { Live } from '../../mesh/live.ts'
import { askedLimitMs } from '../../policies/deadline/asked.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import {
  INVALID_PARAMS,
  INVALID_REQUEST,
  isObject,
  kindOf,
  METHOD_NOT_FOUND,
  paramsOf,
} from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/list-changes.ts'
import { CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY } from '../../protocol/modern.ts'
import { paramsFault } from '../../protocol/params-check.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { principalOf, shownHeaders } from '../credentials.ts'
import type { Guards } from '../guards.ts'
import { tooMuchToSay } from '../hello.ts'
import { refusal, refuse, sendJson } from '../post-reply.ts'
import { gatewayErrorText } from '../respond.ts'
import type { Tenancy } from '../tenancy.ts'
import type { Visit } from '../visit.ts'
import { discover } from './discover.ts'
import { type Envelope, readEnvelope } from './envelope.ts'
import { Exchange } from './exchange.ts'
import { Listening } from './listening.ts'
import { Parking } from './parking.ts'
import { CallerPool, type PooledCaller } from './pool.ts'
import { Post } from './post.ts'
import { Relay } from './relay.ts'
import { readFilter, Subscription, weightOf } from './subscriptions.ts'

/** Methods that this era did away with. */
const gone = new Set([
  'initialize',
  'ping',
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
])

/** Who sent a request, as far as clients are told apart. */
interface Sender {
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
}

/** The 2026 era towards agents: every request speaks for itself, nothing is remembered between two of them. */
export class ModernEndpoint {
  readonly listening: Listening
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #pool: CallerPool
  readonly #parking: Parking<Exchange>
  readonly #relay: Relay
  readonly #guards: Guards

  constructor(live: Live<GatewayGeneration>, clock: Clock, guards: Guards) {
    this.#live = live
    this.#clock = clock
    this.#guards = guards
    this.#parking = new Parking(clock, guards.quotas)
    this.#relay = new Relay(live, clock, guards)
    this.listening = new Listening(live, clock)
    const drop = (caller: PooledCaller) => {
      for (const server of live.current.servers.values()) void server.links.drop(caller)
    }
    this.#pool = new CallerPool(
      clock,
      guards.quotas.callers,
      guards.quotas.greetings,
      drop,
      (server, message) => {
        if (isListChange(message)) this.forgetLists(server)
      },
    )
  }

  /** Takes a POST that was found to be of this era, with its body as text and parsed. Undefined when it was answered at once. */
  post(visit: Visit, text: string, value: unknown): Promise<void> | undefined {
    if (!isObject(value))
      return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Request: expected one message'))
    if (kindOf(value) === 'notification') return void visit.response.writeHead(202).end()
    const message = { text, value }
    const envelope = readEnvelope(visit.headers, message)
    if ('status' in envelope) return refuse(visit, envelope)
    const { id, method, clientInfo, capabilities } = envelope
    if (gone.has(method))
      return refuse(visit, refusal(404, id, METHOD_NOT_FOUND, `Method not found: ${method}`))
    const fault =
      paramsFault(method, paramsOf(value)) ??
      tooMuchToSay(
        text,
        [clientInfo, capabilities],
        ['params', '_meta', CLIENT_INFO_KEY],
        ['params', '_meta', CLIENT_CAPABILITIES_KEY],
      )
    if (fault !== undefined) return refuse(visit, refusal(200, id, INVALID_PARAMS, fault))
    const { limits, tenancies, unread } = this.#guards
    const tenancy = tenancies.of(visit.headers, clientInfo, this.#clock.now())
    const tooFast = limits.refusal(undefined, tenancy.countsAs)
    if (tooFast !== undefined) return refuse(visit, { status: 200, text: gatewayErrorText(id, tooFast, {}) })
    const caller = this.#callerOf(visit, envelope)
    if (isGatewayError(caller)) return refuse(visit, { status: 200, text: gatewayErrorText(id, caller, {}) })
    if (method === 'server/discover')
      return inUse(
        caller,
        discover(visit, id, message, caller, this.#live.current).then(() => unread.wrote(visit.response)),
      )
    if (method === 'subscriptions/listen')
      return inUse(caller, this.#listen(visit, envelope, { caller, tenancy }, message))
    return this.#request(visit, envelope, { caller, tenancy }, message)
  }

  /** What a server offers may have changed, or for undefined that of all: lists are asked for anew. */
  forgetLists(server?: string): void {
    this.#relay.forgetLists(server)
  }

  close(): void {
    this.listening.end(() => true)
    this.#parking.closeAll()
    this.#pool.closeAll()
  }

  /** Clients share conversations with servers only if neither servers nor we could tell them apart. */
  #callerOf(visit: Visit, { clientInfo, capabilities }: Envelope): PooledCaller | GatewayError {
    const shown = shownHeaders(visit, this.#live.current.servers)
    return this.#pool.of(visit.client, clientInfo, capabilities, shown, principalOf(visit.headers))
  }

  async #listen(visit: Visit, { id }: Envelope, sender: Sender, message: Message): Promise<void> {
    const { caller, tenancy } = sender
    const { front, headers, client, response } = visit
    const limitMs = askedLimitMs({ inbound: headers, message })
    const welcome = await front.welcome(this.#live.current, caller, LATEST_LEGACY, limitMs)
    if ('error' in welcome)
      return sendJson(response, 200, gatewayErrorText(id, welcome.error, { server: front.server }))
    // A client that has left already would never be heard to leave.
    if (response.destroyed) return
    const { capabilities } = parseExactly(welcome.text) as { capabilities?: unknown }
    const filter = readFilter(
      paramsOf(message.value).notifications,
      isObject(capabilities) ? capabilities : {},
    )
    if (filter === undefined)
      return refuse(visit, refusal(200, id, INVALID_PARAMS, 'Invalid notifications filter'))
    const { listens } = this.#guards.quotas
    const weight = weightOf(filter)
    const full = listens.refusal(client, weight)
    if (full !== undefined)
      return refuse(visit, { status: 200, text: gatewayErrorText(id, full, { server: front.server }) })
    let remove = () => {}
    const post = new Post(response, { unread: this.#guards.unread, onGone: () => remove() })
    const subscription = new Subscription(id, filter, post)
    subscription.acknowledge()
    if (subscription.isEmpty) return subscription.end()
    listens.take(client, weight)
    const over = () => listens.release(client, weight)
    remove = this.listening.add({ front, caller, tenancy, subscription, over })
  }

  #request(
    visit: Visit,
    envelope: Envelope,
    { caller, tenancy }: Sender,
    message: Message,
  ): Promise<void> | undefined {
    const { id, method } = envelope
    const { _meta: meta, name, uri, requestState, inputResponses } = paramsOf(message.value)
    // Both are strings by now, where they are given.
    const target = shortened(`${visit.front.server ?? ''} ${method} ${(name ?? uri ?? '') as string}`)
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
    const exchange = new Exchange(envelope, caller, visit.client, target, this.#parking)
    this.#wait(visit, exchange, envelope, progressToken)
    return this.#relay.run(visit, exchange, tenancy, message)
  }

  #wait({ response }: Visit, exchange: Exchange, { id }: Envelope, progressToken: unknown): void {
    const onGone = () => exchange.abandon(turn)
    const post = new Post(response, { unread: this.#guards.unread, onGone })
    const turn = { id, progressToken, post }
    exchange.begin(turn)
  }
}

/** Counts as a call of its caller until it is over, so that nobody else takes the caller's place meanwhile. */
function inUse(caller: PooledCaller, ending: Promise<void>): Promise<void> {
  caller.calls++
  return ending.finally(() => caller.calls--)
}

/** What a request names is compared from this length on by its digest, in characters: it is kept as long as its call. */
const LONG_TARGET = 1_024

function shortened(target: string): string {
  return target.length <= LONG_TARGET ? target : createHash('sha256').update(target).digest('base64url')
}
