import type { Caller, Layer, Service } from '../mesh/call.ts'
import type { EraVerdict, Upstream } from '../upstreams/upstream.ts'
import { endpointsOf } from './connection.ts'
import { Discovery } from './discovery.ts'
import { KnownServer, type KnownServerParts } from './known-server.ts'
import { Links } from './links.ts'
import { sendOver } from './sending.ts'

export interface ServerParts extends KnownServerParts {
  /** Hash of the config: as long as it is the same, a reload keeps this very server. */
  readonly hash: string
  readonly replicas: readonly Upstream[]
  /** The `initialize` params of the gateway itself. */
  readonly hello: Readonly<Record<string, unknown>>
  /** Faults below all policies: they hit what the gateway asks on its own behalf as well. */
  readonly faults: Layer
}

/** An entry of the registry while it lives: what is known of it, its replicas, and the conversations with them. */
export class Server extends KnownServer {
  readonly hash: string
  /** The identity of each replica's endpoint. */
  readonly endpoints: readonly string[]
  readonly links: Links
  /** Sends a call over its caller's conversation, which is begun if need be. */
  readonly send: Service
  readonly #replicas: readonly Upstream[]
  readonly #discovery: Discovery
  #holders = 0
  #closing: Promise<void> | undefined

  constructor(parts: ServerParts) {
    super(parts)
    const { name, config, hash, replicas, clock, hello, faults } = parts
    const { discovery: timeoutMs } = config.timeouts
    this.hash = hash
    this.endpoints = endpointsOf(config)
    this.links = new Links({ replicas, clock, timeoutMs })
    this.#replicas = replicas
    this.#discovery = new Discovery({
      server: name,
      links: this.links,
      hello,
      clock,
      faults,
      timeoutMs,
      refreshMs: config.refresh,
      probeMs: config.probe,
      onUp: (catalog, greeting) => this.cameUp(catalog, greeting),
      onDown: (error) => this.wentDown(error),
    })
    this.send = sendOver({
      links: this.links,
      clock,
      replicas: replicas.length,
      suspect: () => this.#discovery.suspect(),
    })
  }

  /** The era that each replica is spoken to in; undefined for one that nobody has asked yet, or that needs no asking. */
  get eras(): readonly (EraVerdict | undefined)[] {
    return this.#replicas.map((replica) => replica.era?.())
  }

  /** The replica that may remember something of a caller. */
  home(caller: Caller): number | undefined {
    const bound = this.links.current(caller)
    return bound?.link.keepsState === true ? bound.replica : undefined
  }

  start(): void {
    this.#discovery.run()
  }

  /** Has its lists fetched again soon. */
  refresh(): void {
    this.#discovery.refresh()
  }

  /** How many processes stand behind it; undefined when there never are any. */
  get processes(): number | undefined {
    const counts = this.#replicas.flatMap((replica) => replica.processes?.() ?? [])
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count)
  }

  /** Signals the processes behind it; false when there are none. */
  signal(name: NodeJS.Signals): boolean {
    return this.#replicas.map((replica) => replica.signal?.(name) === true).includes(true)
  }

  /** One more generation uses it. */
  retain(): void {
    this.#holders++
  }

  /** A generation has ended: with the last that used it, it ends too. */
  release(): void {
    if (--this.#holders === 0) void this.close()
  }

  /** Ends its conversations and processes. Idempotent. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.#discovery.stop()
    this.endGrace()
    await this.links.closeAll()
    await Promise.all(this.#replicas.map((replica) => replica.close()))
  }
}
