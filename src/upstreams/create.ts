import type { ServerConfig } from '../config/schema/schema.ts'
import type { HttpServerConfig } from '../config/schema/server-schema.ts'
import type { Layer, Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Log } from '../telemetry/log.ts'
import { EraUpstream } from './era.ts'
import { HttpUpstream } from './http/http.ts'
import { SessionStates } from './shared/session-state.ts'
import { type ModernHttpOptions, ModernHttpUpstream } from './modern/modern-http.ts'
import type { TaskBinding } from './shared/task-binding.ts'
import { ToolCallRules } from './modern/tool-call-rules.ts'
import { Skipped } from './skipped.ts'
import { SseUpstream } from './sse/sse.ts'
import { type StdioOptions, StdioUpstream } from './stdio/stdio.ts'
import type { UnfinishedReplies } from './unfinished-replies.ts'
import type { Upstream, Eras, KnownTransport, UpstreamSession } from './upstream.ts'
import type { Signal } from '../mesh/cancel.ts'
import { isGatewayError, type GatewayError } from '../mesh/errors.ts'
import { within } from './failure.ts'

interface UpstreamParts {
  readonly clock: Clock
  readonly log: Log
  /** The `initialize` params of the gateway itself, for upstream sessions that no single caller owns. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** Bounds the memory for incomplete replies of all servers. */
  readonly replies: UnfinishedReplies
  /** The owners of the server's tasks, which outlive its connection. */
  readonly tasks: TaskBinding
  /** Told of each process that a limit refuses. */
  readonly refused?: NonNullable<StdioOptions['refused']>
  /** Told of each request of a shared process that nobody gets because of an open task. */
  readonly withheld?: NonNullable<StdioOptions['withheld']>
  /** Faults of the handshakes and pings that upstream sessions need for themselves; none unless given. */
  readonly faults?: Layer | undefined
}

/** The replicas of a server: one for a process, one per URL otherwise. Throws for a config that cannot come into force. */
export function createUpstreams(server: string, config: ServerConfig, parts: UpstreamParts): Upstream[] {
  try {
    return replicasOf(server, config, parts)
  } catch (error) {
    throw new Error(`mcpServers.${server}: ${(error as Error).message}`, { cause: error })
  }
}

/** A new type of server is one more case. */
function replicasOf(server: string, config: ServerConfig, parts: UpstreamParts): Upstream[] {
  const unfinished = parts.replies.of(config.maxReply)
  switch (config.type) {
    case 'stdio':
      return [new StdioUpstream({ server, config, ...parts })]
    case 'http': {
      const tools = new ToolCallRules()
      const states = new SessionStates()
      const skipped = new Skipped(parts.clock, parts.log.child({ server }))
      return config.urls.map((url) => {
        const options = { ...config, ...parts, server, url, tools, states, unfinished, skipped }
        const http = httpUpstream(options, config.era)
        // HTTP+SSE is of the legacy era.
        if (config.era === 'modern') return http
        const sse = () => new SseUpstream({ server, config, url, unfinished, ...parts })
        const { clock, log } = parts
        return new TransportUpstream({ server, fallsBack: config.detect, clock, log, http, sse })
      })
    }
    case 'sse':
      return config.urls.map((url) => new SseUpstream({ server, config, url, unfinished, ...parts }))
  }
}

/** An endpoint over Streamable HTTP, of whichever era it is. */
function httpUpstream(options: ModernHttpOptions, era: HttpServerConfig['era']): Upstream {
  return new EraUpstream({
    era,
    clock: options.clock,
    initializeParams: options.initializeParams,
    handshakeMs: options.timeouts.discovery,
    make: (onVersionError) => ({
      legacy: new HttpUpstream({ ...options, onVersionError: onVersionError('legacy') }),
      modern: new ModernHttpUpstream({ ...options, onVersionError: onVersionError('modern') }),
    }),
  })
}

/** An upstream over HTTP+SSE. */
interface OldUpstream extends Upstream {
  /** Whether the address is that of an event stream which begins by naming an endpoint. Never rejects. */
  namesEndpoint(caller: Caller, signal: Signal): Promise<boolean>
}

export interface TransportOptions {
  /** The server's name in the registry. */
  readonly server: string
  /** Whether HTTP+SSE is spoken where it is found; otherwise only the error tells of it. */
  readonly fallsBack: boolean
  readonly clock: Clock
  readonly log: Log
  /** The way over Streamable HTTP. */
  readonly http: Upstream
  /** Makes the way over HTTP+SSE, when it is needed first. */
  readonly sse: () => OldUpstream
}

/** By which a server answers `initialize` that knows no Streamable HTTP. */
const notStreamable: ReadonlySet<number | undefined> = new Set([400, 404, 405])

/** How long an event stream may take to name its endpoint, which is the first thing that it says, in milliseconds. */
const ENDPOINT_MS: Millis = 3_000

/**
 * One URL of which nobody has said which transport is behind it. By the specification's rule: Streamable HTTP, unless that is
 * refused with 400, 404 or 405 and a GET brings an event stream that names an endpoint, as HTTP+SSE does. A server that
 * cannot be reached, or refuses both, is known no better than before, and is asked again by the next who comes.
 */
export class TransportUpstream implements Upstream {
  readonly #options: TransportOptions
  #made: OldUpstream | undefined
  #known: KnownTransport | undefined
  /** Whether HTTP+SSE has failed since it was found: it is found out again then. */
  #isInDoubt = false

  constructor(options: TransportOptions) {
    this.#options = options
  }

  transport(): KnownTransport | undefined {
    return this.#known
  }

  eras(): Eras {
    const { http } = this.#options
    if (this.#known?.transport !== 'sse') return http.eras?.() ?? {}
    const { at } = this.#known
    return {
      legacy: { speaks: true, decidedBy: 'probe', at },
      modern: { speaks: false, decidedBy: 'probe', at },
    }
  }

  /** Both ways lead to the same address. */
  probe(signal: Signal): Promise<boolean> {
    return this.#options.http.probe?.(signal) ?? Promise.resolve(false)
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (this.#known?.transport !== 'sse' || this.#isInDoubt) return this.#openHttp(caller, signal)
    try {
      return await this.#sse.open(caller, signal)
    } catch (error) {
      // Another server may have taken its place. One of Streamable HTTP need not refuse a stream: it may open one and be silent.
      if (!isRefusal(error)) {
        this.#isInDoubt = true
        throw error
      }
      this.#known = undefined
      return this.#openHttp(caller, signal)
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#options.http.close(), this.#made?.close()])
  }

  get #sse(): OldUpstream {
    return (this.#made ??= this.#options.sse())
  }

  async #openHttp(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    try {
      const upstreamSession = await this.#options.http.open(caller, signal)
      this.#note('streamable-http')
      return upstreamSession
    } catch (refusal) {
      if (!isRefusal(refusal) || !(await this.#isOld(caller, signal))) throw refusal
      const { fallsBack } = this.#options
      if (!fallsBack) {
        const hint = 'what is there speaks HTTP+SSE: its entry needs "type: sse", or no type at all'
        throw { ...refusal, message: `${refusal.message}; ${hint}` }
      }
    }
    this.#note('sse')
    return this.#sse.open(caller, signal)
  }

  #isOld(caller: Caller, signal: Signal): Promise<boolean> {
    return within(ENDPOINT_MS, this.#options.clock, signal, (limit) => this.#sse.namesEndpoint(caller, limit))
  }

  #note(transport: KnownTransport['transport']): void {
    const { server, clock, log, fallsBack } = this.#options
    this.#isInDoubt = false
    if (!fallsBack || this.#known?.transport === transport) return
    this.#known = { transport, decidedBy: 'probe', at: clock.wall() }
    if (transport === 'sse')
      log.info({ server, transport }, 'the server speaks HTTP+SSE, the transport of 2024-11-05')
    else log.debug({ server, transport }, 'the server speaks Streamable HTTP')
  }
}

function isRefusal(error: unknown): error is GatewayError {
  return isGatewayError(error) && notStreamable.has(error.status)
}
