import type { Message } from '../../mesh/call.ts'
import { inTurns, type Cancel, type Clock, type Millis } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import { notificationText } from '../../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { kinds, type ListKind } from '../../registry/kinds.ts'
import type { Front } from '../front.ts'
import type { Tenancy } from '../tenancy.ts'
import type { PooledCaller } from './pool.ts'
import type { Subscription } from './subscriptions.ts'
import { WantedResources } from './wanted-resources.ts'

/** Between two signs of life on a silent stream, in milliseconds; clients give up after some minutes of silence. */
const KEEP_ALIVE_MS: Millis = 15_000

/** Who listens, and to what. */
export interface Subscriber {
  readonly front: Front
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
  readonly #clock: Clock
  readonly #open = new Set<Listener>()
  readonly #resources: WantedResources
  #cancelKeepAlive: Cancel | undefined

  constructor(live: Live<GatewayGeneration>, clock: Clock) {
    this.#live = live
    this.#clock = clock
    this.#resources = new WantedResources(live, clock)
  }

  get size(): number {
    return this.#open.size
  }

  /** Begins to pass on what a subscription asks for. Returns how to end it. */
  add(subscriber: Subscriber): () => void {
    const { front, caller, subscription } = subscriber
    const receive = (server: string, message: Message) => {
      if (front.server !== undefined && front.server !== server) return
      const inbound = front.inbound(this.#live.current, server, message)
      if (inbound !== undefined) subscription.tell(inbound)
    }
    const listener = { ...subscriber, receive }
    this.#open.add(listener)
    caller.listeners.add(receive)
    for (const server of this.#live.current.servers.values())
      for (const link of server.links.all(caller)) link.listen()
    this.#resources.add(subscriber, subscription.filter.resourceSubscriptions)
    this.#cancelKeepAlive ??= this.#keepAliveLater()
    return () => this.#remove(listener)
  }

  /** Tells subscriptions on the aggregate that lists changed. */
  tellChanged(changed: readonly ListKind[]): void {
    const methods = new Set(changed.map((kind) => kinds[kind].changed))
    for (const method of methods) {
      const text = notificationText(method)
      const message = { text, value: { jsonrpc: '2.0', method } }
      void inTurns(this.#open, ({ front, subscription }) => {
        if (front.server === undefined) subscription.tell(message)
      })
    }
  }

  /** Says goodbye to subscriptions on servers that are no more; to all of them when the gateway stops. */
  end(which: (front: Front) => boolean): void {
    for (const listener of [...this.#open]) {
      if (!which(listener.front)) continue
      listener.subscription.end()
      this.#remove(listener)
    }
  }

  #remove(listener: Listener): void {
    if (!this.#open.delete(listener)) return
    listener.over()
    listener.caller.listeners.delete(listener.receive)
    this.#resources.remove(listener, listener.subscription.filter.resourceSubscriptions)
    if (this.#open.size > 0) return
    this.#cancelKeepAlive?.()
    this.#cancelKeepAlive = undefined
  }

  #keepAliveLater(): Cancel {
    return this.#clock.after(KEEP_ALIVE_MS, () => {
      void inTurns(this.#open, ({ subscription }) => subscription.keepAlive())
      this.#cancelKeepAlive = this.#keepAliveLater()
    })
  }
}
