import { type Message, newRecord } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { type Clock, inTurns, type Millis, nextTurn } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import { notificationText, requestText } from '../../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { kinds, type ListKind } from '../../protocol/lists.ts'
import { orAborted, within } from '../../upstreams/failure.ts'
import type { Endpoint } from '../endpoint.ts'
import type { Tenancy } from '../../access/caller.ts'
import type { PooledCaller } from './pool.ts'
import type { Subscription } from './subscriptions.ts'

/** A client that listens, and its subscription. */
interface Subscriber {
  readonly endpoint: Endpoint
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
  readonly subscription: Subscription
  /** Told once when it has ended. */
  readonly over: () => void
}

interface Listener extends Subscriber {
  readonly receive: (server: string, message: Message) => void
}

/** All open subscriptions of modern clients, and what servers have to be asked for on their behalf. */
export class Listening {
  readonly #live: Live<GatewayGeneration>
  readonly #open = new Set<Listener>()
  readonly #resources: WantedResources

  constructor(live: Live<GatewayGeneration>, clock: Clock) {
    this.#live = live
    this.#resources = new WantedResources(live, clock)
  }

  get size(): number {
    return this.#open.size
  }

  /** Begins to pass on what a subscription asks for. Returns how to end it. */
  add(subscriber: Subscriber): () => void {
    const { endpoint, caller, subscription } = subscriber
    const receive = (server: string, message: Message) => {
      if (endpoint.server !== undefined && endpoint.server !== server) return
      const inbound = endpoint.inbound(this.#live.current, server, message)
      if (inbound !== undefined) subscription.tell(inbound)
    }
    const listener = { ...subscriber, receive }
    this.#open.add(listener)
    caller.listeners.add(receive)
    for (const server of this.#live.current.servers.values())
      for (const upstreamSession of server.upstreamSessions.all(caller)) upstreamSession.listen()
    this.#resources.add(subscriber, subscription.filter.resourceSubscriptions)
    return () => this.#remove(listener)
  }

  /** Tells subscriptions on the aggregate that lists changed. */
  tellChanged(changed: readonly ListKind[]): void {
    const methods = new Set(changed.map((kind) => kinds[kind].changed))
    for (const method of methods) {
      const text = notificationText(method)
      const message = { text, value: { jsonrpc: '2.0', method } }
      void inTurns(this.#open, ({ endpoint, subscription }) => {
        if (endpoint.server === undefined) subscription.tell(message)
      })
    }
  }

  /** Says goodbye to subscriptions on servers that are no more; to all of them when the gateway stops. */
  end(which: (endpoint: Endpoint) => boolean): void {
    for (const listener of [...this.#open]) {
      if (!which(listener.endpoint)) continue
      listener.subscription.end()
      this.#remove(listener)
    }
  }

  /** Says goodbye to all subscriptions of a caller that is dropped: its upstream sessions end, so no server is told. */
  endOf(caller: PooledCaller): void {
    if (!caller.listening) return
    this.#resources.forgetAll(caller)
    for (const listener of [...this.#open]) {
      if (listener.caller !== caller) continue
      this.#forget(listener)
      listener.subscription.end()
    }
  }

  #remove(listener: Listener): void {
    if (this.#forget(listener))
      this.#resources.remove(listener, listener.subscription.filter.resourceSubscriptions)
  }

  /** False when that was done before. */
  #forget(listener: Listener): boolean {
    if (!this.#open.delete(listener)) return false
    listener.over()
    listener.caller.listeners.delete(listener.receive)
    return true
  }
}

/** Most requests to one server, on behalf of one caller, at once. */
const AT_ONCE = 16

/** How long a server may take for one of them, in milliseconds: the others wait for it. */
const REQUEST_MS: Millis = 10_000

/** The caller that wants resources, and the endpoint of the resources. */
interface Wanting {
  readonly endpoint: Endpoint
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
}

/** The resources that one caller wants of one endpoint. */
interface Wants {
  /** How many subscriptions want each URI. */
  readonly counts: Map<string, number>
  /** The URIs that the server has to be told about, and for whom it is asked. Whether they are wanted counts when it is. */
  readonly untold: Map<string, Wanting>
  isTelling: boolean
}

/**
 * The resources that open subscriptions want to hear of. Servers of the legacy era are asked for each by a request of its
 * own: one for each URI however many want it, and a few at a time, so that a thousand subscriptions that end at once
 * hold up nobody.
 */
class WantedResources {
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #wants = new Map<PooledCaller, Map<string | undefined, Wants>>()

  constructor(live: Live<GatewayGeneration>, clock: Clock) {
    this.#live = live
    this.#clock = clock
  }

  add(wanting: Wanting, uris: readonly string[]): void {
    if (uris.length === 0) return
    const wants = this.#of(wanting)
    for (const uri of uris) {
      wants.counts.set(uri, (wants.counts.get(uri) ?? 0) + 1)
      // Also when it is wanted already: the upstream session may be another one by now.
      wants.untold.set(uri, wanting)
    }
    this.#tell(wanting, wants)
  }

  remove(wanting: Wanting, uris: readonly string[]): void {
    if (uris.length === 0) return
    const wants = this.#of(wanting)
    for (const uri of uris) {
      const left = (wants.counts.get(uri) ?? 0) - 1
      if (left > 0) wants.counts.set(uri, left)
      else {
        wants.counts.delete(uri)
        wants.untold.set(uri, wanting)
      }
    }
    this.#tell(wanting, wants)
    this.#forget(wanting)
  }

  /** For a caller of which nothing is being told. */
  forgetAll(caller: PooledCaller): void {
    this.#wants.delete(caller)
  }

  #of({ caller, endpoint }: Wanting): Wants {
    let endpoints = this.#wants.get(caller)
    if (endpoints === undefined) this.#wants.set(caller, (endpoints = new Map<string | undefined, Wants>()))
    let wants = endpoints.get(endpoint.server)
    if (wants === undefined) {
      wants = { counts: new Map(), untold: new Map(), isTelling: false }
      endpoints.set(endpoint.server, wants)
    }
    return wants
  }

  #forget({ caller, endpoint }: Wanting): void {
    const endpoints = this.#wants.get(caller)
    const wants = endpoints?.get(endpoint.server)
    if (wants === undefined || wants.counts.size > 0 || wants.isTelling) return
    endpoints?.delete(endpoint.server)
    if (endpoints?.size === 0) this.#wants.delete(caller)
  }

  #tell(wanting: Wanting, wants: Wants): void {
    if (!wants.isTelling) void this.#tellAll(wanting, wants)
  }

  async #tellAll(wanting: Wanting, wants: Wants): Promise<void> {
    const { caller } = wanting
    wants.isTelling = true
    // In use also when nobody listens any more: for a caller that was dropped, each request would begin an upstream session
    // that nobody ends.
    caller.calls++
    try {
      while (wants.untold.size > 0) {
        const round: Promise<unknown>[] = []
        for (const [uri, by] of wants.untold) {
          wants.untold.delete(uri)
          // Nothing is left to be asked of a server that was removed.
          if (this.#isGone(by.endpoint)) continue
          if (round.push(this.#ask(by, wants.counts.has(uri) ? 'subscribe' : 'unsubscribe', uri)) === AT_ONCE)
            break
        }
        if (round.length === 0) continue
        const asked = await Promise.allSettled(round)
        // A server that answers none of them in time is not worth it that the caller stays in use for nobody.
        if (!caller.listening && asked.every(({ status }) => status === 'rejected')) wants.untold.clear()
        // Servers that are out of reach answer at once, and so would all of the next ones.
        if (wants.untold.size > 0) await nextTurn()
      }
    } finally {
      wants.isTelling = false
      caller.calls--
    }
    this.#forget(wanting)
  }

  #isGone({ server }: Endpoint): boolean {
    return server !== undefined && !this.#live.current.servers.has(server)
  }

  /** Rejects when there is no answer in time. */
  async #ask({ endpoint, caller, tenancy }: Wanting, what: string, uri: string): Promise<void> {
    const id = caller.mintId()
    const method = `resources/${what}`
    const params = { uri }
    const message = { text: requestText(id, method, params), value: { jsonrpc: '2.0', id, method, params } }
    const channelFor = () => ({ open: () => undefined, pause: () => undefined, send: () => undefined })
    const record = newRecord(this.#clock.now())
    const lease = this.#live.enter()
    try {
      await within(REQUEST_MS, this.#clock, new Cancellation(), async (signal) => {
        const request = { id, message, headers: {}, caller, tenancy, channelFor, signal, record }
        await orAborted(endpoint.request(lease.generation, request), signal)
      })
    } finally {
      lease.release()
    }
  }
}
