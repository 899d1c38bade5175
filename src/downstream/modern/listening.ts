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

interface Subscriber {
  readonly endpoint: Endpoint
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
  readonly subscription: Subscription
  /** A callback for the end of the subscription, called once. */
  readonly over: () => void
}

interface Listener extends Subscriber {
  readonly receive: (server: string, message: Message) => void
}

/** All open subscriptions of modern clients, and the subscriptions at servers for their resources. */
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

  /** Adds a subscription. Returns a function that ends the subscription. */
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

  /** Tells subscriptions on the endpoint for all servers about changed lists. */
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

  /** Ends the subscriptions on endpoints for which `which` returns true. */
  end(which: (endpoint: Endpoint) => boolean): void {
    for (const listener of [...this.#open]) {
      if (!which(listener.endpoint)) continue
      listener.subscription.end()
      this.#remove(listener)
    }
  }

  /** Ends all subscriptions of a dropped caller. Tells no server, because the caller's upstream sessions end too. */
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

  /** Removes a subscription. Returns false when it was already removed. */
  #forget(listener: Listener): boolean {
    if (!this.#open.delete(listener)) return false
    listener.over()
    listener.caller.listeners.delete(listener.receive)
    return true
  }
}

/** Most concurrent requests to a server for one caller. */
const AT_ONCE = 16

/** Timeout of one request to a server, in milliseconds, because further requests wait for it. */
const REQUEST_MS: Millis = 10_000

/** A caller that wants updates of resources, and its endpoint. */
interface Wanting {
  readonly endpoint: Endpoint
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
}

interface Wants {
  readonly counts: Map<string, number>
  /**
   * The URIs to subscribe or unsubscribe at the server, each with its caller. The count of a URI decides which, at the
   * time of the request.
   */
  readonly untold: Map<string, Wanting>
  isTelling: boolean
}

/**
 * The resources of open subscriptions. Subscribes to each URI once at its legacy server, however many clients want it.
 * Sends few requests at a time, so a thousand ending subscriptions do not delay other calls.
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
      // Subscribes again for a URI that other clients want, because the upstream session may be new.
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

  /** Forgets all resources of a caller that has no request in progress. */
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
    // Counts as a call of the caller, so the pool does not drop the caller meanwhile. Requests of a dropped caller
    // would begin upstream sessions that never end.
    caller.calls++
    try {
      while (wants.untold.size > 0) {
        const round: Promise<unknown>[] = []
        for (const [uri, by] of wants.untold) {
          wants.untold.delete(uri)
          // Skips a removed server.
          if (this.#isGone(by.endpoint)) continue
          if (round.push(this.#ask(by, wants.counts.has(uri) ? 'subscribe' : 'unsubscribe', uri)) === AT_ONCE)
            break
        }
        if (round.length === 0) continue
        const asked = await Promise.allSettled(round)
        // Gives up when no request succeeded and the caller has no other use: the caller must not be kept for such a
        // server.
        if (!caller.listening && asked.every(({ status }) => status === 'rejected')) wants.untold.clear()
        // Waits for a turn: requests to an unreachable server fail at once, and would block the event loop.
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

  /** Sends one request to a server. Rejects when no answer comes within `REQUEST_MS`. */
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
