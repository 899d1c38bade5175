import type { Signal } from '../../mesh/cancel.ts'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import type { Caller } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { soloAudience } from '../shared/audience.ts'
import { Child } from './child.ts'
import { abortError, whenAborted } from '../failure.ts'
import { openError } from '../pipe/handshake.ts'
import { launch } from './launch.ts'
import { MessageLink } from '../pipe/message-link.ts'
import { modernSeat } from '../modern/modern-seat.ts'
import type { Connect } from '../pipe/pipe.ts'
import { PipeVerdict } from '../pipe/pipe-verdict.ts'
import { RestartGate } from './restart-gate.ts'
import { SharedLink } from '../shared/shared-link.ts'
import { SingleFlight } from '../pipe/single-flight.ts'
import { ToolFacts } from '../modern/tool-facts.ts'
import type { Era, EraVerdict, Link, Upstream } from '../upstream.ts'

export interface StdioOptions {
  /** The server's name in the registry. */
  readonly server: string
  readonly config: StdioServerConfig
  /** The gateway's own `initialize` params, for a process that callers share. */
  readonly hello: Readonly<Record<string, unknown>>
  readonly clock: Clock
  readonly log: Log
}

/** A server that runs as a child process: one for all callers, or one for each. */
export class StdioUpstream implements Upstream {
  readonly #options: StdioOptions
  readonly #log: Log
  readonly #links = new Set<MessageLink | SharedLink>()
  readonly #children = new Set<Promise<Child>>()
  /** Whose process may be started when. A caller's own is forgotten with the caller. */
  readonly #gates = new WeakMap<object, RestartGate>()
  readonly #tools = new ToolFacts()
  readonly #verdict: PipeVerdict
  #shared: SingleFlight<SharedLink> | undefined
  #closed = false

  constructor(options: StdioOptions) {
    this.#options = options
    this.#log = options.log.child({ server: options.server })
    this.#verdict = new PipeVerdict(options.config.era, options.clock)
  }

  era(): EraVerdict | undefined {
    return this.#verdict.value
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    if (signal.aborted) throw abortError(signal)
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
    return this.#options.config.sharing === 'shared'
      ? this.#join(caller, signal)
      : this.#openFor(caller, signal)
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const link of this.#links) void link.close()
    await Promise.all([...this.#children].map((starting) => starting.then((child) => child.close(), noChild)))
  }

  signal(name: NodeJS.Signals): boolean {
    for (const starting of this.#children) void starting.then((child) => child.signal(name), noChild)
    return this.#children.size > 0
  }

  async #openFor(caller: Caller, signal: Signal): Promise<Link> {
    const { server, clock } = this.#options
    const terms = {
      server,
      hello: caller.hello,
      audience: soloAudience(server, caller),
      clock,
      log: this.#log,
    }
    const link = await this.#start(caller, (connect, era) =>
      MessageLink.open(connect, { ...terms, era }, signal),
    )
    if (link.discover === undefined) return link
    const seat = modernSeat(link, link.discover, { server, clock, tools: this.#tools }, caller)
    whenAborted(seat.ended, () => void link.close())
    return seat
  }

  async #join(caller: Caller, signal: Signal): Promise<Link> {
    this.#shared ??= this.#startShared()
    const shared = await this.#shared.join(signal)
    if (shared.ended.aborted) throw openError(shared.ended.reason)
    return shared.attach(caller)
  }

  #startShared(): SingleFlight<SharedLink> {
    const { server, hello, clock } = this.#options
    const terms = { server, hello, clock, log: this.#log, tools: this.#tools }
    const forget = () => (this.#shared = undefined)
    return new SingleFlight(async (signal) => {
      const link = await this.#start(this, (connect, era) =>
        SharedLink.open(connect, { ...terms, era }, signal),
      )
      whenAborted(link.ended, forget)
      return link
    }, forget)
  }

  /** Starts a process unless the one before it has just crashed; `owner` is who it is for. */
  async #start<Held extends MessageLink | SharedLink>(
    owner: object,
    open: (connect: Connect, era: Era | 'auto') => Promise<Held>,
  ): Promise<Held> {
    const gate = this.#gateOf(owner)
    const retryAfterMs = Math.ceil(gate.waitMs)
    if (retryAfterMs > 0) {
      const message = `the server's process ended and is not started again before ${retryAfterMs} ms have passed`
      throw gatewayError('upstream_unavailable', message, { retryAfterMs })
    }
    gate.started()
    try {
      const link = await this.#verdict.open(this.#connect, open)
      this.#links.add(link)
      whenAborted(link.ended, (error) => {
        this.#links.delete(link)
        if (error.reason !== 'cancelled') this.#crashed(gate, error)
      })
      return link
    } catch (error) {
      throw this.#crashed(gate, error as GatewayError)
    }
  }

  #crashed(gate: RestartGate, error: GatewayError): GatewayError {
    gate.crashed()
    const retryAfterMs = Math.ceil(gate.waitMs)
    this.#log.warn({ reason: error.reason, retryAfterMs }, error.message)
    return { ...error, retryAfterMs }
  }

  #gateOf(owner: object): RestartGate {
    const gate = this.#gates.get(owner) ?? new RestartGate(this.#options.clock)
    this.#gates.set(owner, gate)
    return gate
  }

  readonly #connect: Connect = async (events) => {
    // The first process of an opening may have ended because everything does.
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
    const { config, clock } = this.#options
    const { maxReply } = config
    const starting = launch(config).then(
      (child) => new Child(child, { maxReply, events, clock, log: this.#log }),
    )
    this.#children.add(starting)
    const forget = () => this.#children.delete(starting)
    starting.then((child) => child.gone).then(forget, forget)
    return starting
  }
}

function noChild(): void {}
