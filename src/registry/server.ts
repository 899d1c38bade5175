import type { Caller, Call, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Cancel, Clock } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import { glob, type Glob } from '../mesh/match.ts'
import type { Effect, ToolFacts } from '../mesh/policy.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import { orAborted } from '../upstreams/failure.ts'
import type { EraVerdict, Link, Upstream } from '../upstreams/upstream.ts'
import { changedKinds, emptyCatalog, type Catalog, type Entry } from './catalog.ts'
import { Discovery } from './discovery.ts'
import type { ListKind } from './kinds.ts'
import { knownTools, type KnownTool } from './known-tools.ts'
import { Links, type BoundLink } from './links.ts'
import { exchangeOver } from './outgoing.ts'

/** `starting` until the first round of discovery has ended, one way or the other. */
export type ServerState = 'starting' | 'up' | 'down'

export interface ServerParts {
  readonly name: string
  readonly config: ServerConfig
  /** Hash of the config: as long as it is the same, a reload keeps this very server. */
  readonly hash: string
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** The `initialize` params of the gateway itself. */
  readonly hello: Readonly<Record<string, unknown>>
  /** Faults below all policies: they hit what the gateway asks on its own behalf as well. */
  readonly faults: Layer
  readonly onChanged: (server: Server, changed: readonly ListKind[]) => void
  readonly onState: (server: Server) => void
}

/** An entry of the registry while it lives: its replicas, its conversations, and what is known of its tools. */
export class Server {
  readonly name: string
  readonly config: ServerConfig
  readonly hash: string
  readonly links: Links
  readonly #parts: ServerParts
  readonly #discovery: Discovery
  readonly #allows: Glob
  #state: ServerState = 'starting'
  #since: number
  #error: GatewayError | undefined
  #catalog: Catalog = emptyCatalog
  #tools: ReadonlyMap<string, KnownTool> = new Map()
  #greeting: Message | undefined
  #cancelGrace: Cancel | undefined
  #holders = 0
  #closing: Promise<void> | undefined
  #settle: () => void = () => undefined
  /** Resolves when the first round of discovery has ended. */
  readonly settled = new Promise<void>((resolve) => (this.#settle = resolve))

  constructor(parts: ServerParts) {
    const { name, config, hash, replicas, clock, hello } = parts
    const { discovery: timeoutMs } = config.timeouts
    this.name = name
    this.config = config
    this.hash = hash
    this.#parts = parts
    this.#since = clock.wall()
    this.#allows = filter(config.tools)
    this.links = new Links({ replicas, clock, timeoutMs })
    this.#discovery = new Discovery({
      server: name,
      links: this.links,
      hello,
      clock,
      faults: parts.faults,
      timeoutMs,
      refreshMs: config.refresh,
      probeMs: config.probe,
      onUp: (catalog, greeting) => this.#up(catalog, greeting),
      onDown: (error) => this.#down(error),
    })
  }

  get state(): ServerState {
    return this.#state
  }

  /** When the state began, in milliseconds since the Unix epoch. */
  get since(): number {
    return this.#since
  }

  /** Why the server is down. */
  get error(): GatewayError | undefined {
    return this.#error
  }

  get catalog(): Catalog {
    return this.#catalog
  }

  /** The server's `initialize` result, as the gateway got it last. */
  get greeting(): Message | undefined {
    return this.#greeting
  }

  /** The era that each replica is spoken to in; undefined for one that nobody has asked yet, or that needs no asking. */
  get eras(): readonly (EraVerdict | undefined)[] {
    return this.#parts.replicas.map((replica) => replica.era?.())
  }

  start(): void {
    this.#discovery.run()
  }

  /** Has its lists fetched again soon. */
  refresh(): void {
    this.#discovery.refresh()
  }

  /** Signals the processes behind it; false when there are none. */
  signal(name: NodeJS.Signals): boolean {
    return this.#parts.replicas.map((replica) => replica.signal?.(name) === true).includes(true)
  }

  /** Whether agents may see and call a tool. */
  allows(tool: string): boolean {
    return this.#allows(tool)
  }

  get replicas(): number {
    return this.#parts.replicas.length
  }

  /** What the catalog says of a tool. */
  facts(tool: string): ToolFacts | undefined {
    return this.#tools.get(tool)
  }

  /** What the server says itself of a tool's effect: believed only if the server is trusted. */
  effectOf(tool: string): Effect {
    return this.config.trusted ? (this.#tools.get(tool)?.annotated ?? 'unknown') : 'unknown'
  }

  /** The replica that may remember something of a caller. */
  home(caller: Caller): number | undefined {
    const bound = this.links.current(caller)
    return bound?.link.keepsState === true ? bound.replica : undefined
  }

  /** What agents may see of a list. */
  entries(kind: ListKind): readonly Entry[] {
    const all = this.#catalog.lists[kind]
    return kind === 'tools' ? all.filter((entry) => this.#allows(entry.key)) : all
  }

  /** Sends a call over its caller's conversation, which is begun if need be. */
  send(call: Call): Promise<Outcome> {
    const bound = this.links.current(call.caller, call.replica)
    return bound === undefined ? this.#sendFirst(call) : this.#exchange(bound, call)
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
    this.#cancelGrace?.()
    await this.links.closeAll()
    await Promise.all(this.#parts.replicas.map((replica) => replica.close()))
  }

  async #sendFirst(call: Call): Promise<Outcome> {
    let opened: BoundLink
    try {
      opened = await orAborted(this.links.of(call.caller, call.replica), call.signal)
    } catch (error) {
      this.#discovery.suspect()
      return { kind: 'failed', error: error as GatewayError }
    }
    return this.#exchange(opened, call)
  }

  #exchange({ link, replica }: BoundLink, call: Call): Promise<Outcome> {
    call.record.attempts++
    call.record.replica = replica
    return exchangeOver(link, call, this.#parts.clock).then((outcome) => {
      if (outcome.kind === 'failed') this.#look(call.caller, link, outcome.error)
      return outcome
    })
  }

  /** A failure may say more than that one call failed. */
  #look(caller: Caller, link: Link, error: GatewayError): void {
    if (error.reason === 'session_lost') void this.links.dropLink(caller, link)
    if (error.reason !== 'upstream_unavailable' && error.reason !== 'upstream_disconnected') return
    this.#discovery.suspect()
    if (this.#parts.replicas.length > 1) void this.links.dropLink(caller, link)
  }

  #up(catalog: Catalog, greeting: Message): void {
    this.#cancelGrace?.()
    this.#cancelGrace = undefined
    this.#greeting = greeting
    this.#error = undefined
    this.#enter('up')
    this.#replace(catalog)
  }

  #down(error: GatewayError): void {
    this.#error = error
    this.#enter('down')
    this.#cancelGrace ??= this.#parts.clock.after(this.config.grace, () => this.#replace(emptyCatalog))
  }

  #enter(state: ServerState): void {
    this.#settle()
    if (state === this.#state) return
    this.#state = state
    this.#since = this.#parts.clock.wall()
    this.#parts.onState(this)
  }

  #replace(catalog: Catalog): void {
    const changed = changedKinds(this.#catalog, catalog)
    this.#catalog = catalog
    this.#tools = knownTools(catalog, this.#tools)
    if (changed.length > 0) this.#parts.onChanged(this, changed)
  }
}

function filter({ include, exclude }: ServerConfig['tools']): Glob {
  const included = include.map(glob)
  const excluded = exclude.map(glob)
  return (tool) => included.some((match) => match(tool)) && !excluded.some((match) => match(tool))
}
