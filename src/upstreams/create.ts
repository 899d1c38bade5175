import type { ServerConfig } from '../config/schema/schema.ts'
import type { HttpServerConfig } from '../config/schema/server-schema.ts'
import type { Layer, Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Log } from '../telemetry/log.ts'
import { EraUpstream } from './era.ts'
import type { HttpEngineName } from './http/call-sockets.ts'
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
  /** The gateway's own `initialize` params, for shared upstream sessions. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly replies: UnfinishedReplies
  /** The owners of the server's tasks; kept when a new connection replaces this one. */
  readonly tasks: TaskBinding
  /** Called for each process refused by a limit. */
  readonly refused?: NonNullable<StdioOptions['refused']>
  /** Called for each request of a shared process that no caller gets because of an open task or an abandoned call. */
  readonly withheld?: NonNullable<StdioOptions['withheld']>
  /** Faults of the handshakes and pings of upstream sessions; optional. */
  readonly faults?: Layer | undefined
  /** The engine of calls to HTTP servers; default `node`. */
  readonly http?: HttpEngineName | undefined
}

/** Creates the replicas of a server: one for a process, otherwise one per URL. Throws for an unusable config. */
export function createUpstreams(server: string, config: ServerConfig, parts: UpstreamParts): Upstream[] {
  try {
    return replicasOf(server, config, parts)
  } catch (error) {
    throw new Error(`mcpServers.${server}: ${(error as Error).message}`, { cause: error })
  }
}

/** Returns the replicas. Add a case here for a new type of server. */
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
        // HTTP+SSE belongs to the legacy era.
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

interface OldUpstream extends Upstream {
  /** Resolves to whether the address serves an event stream whose first event names an endpoint. Never rejects. */
  namesEndpoint(caller: Caller, signal: Signal): Promise<boolean>
}

export interface TransportOptions {
  readonly server: string
  /** True: use HTTP+SSE if the server speaks it. False: only mention HTTP+SSE in the error. */
  readonly fallsBack: boolean
  readonly clock: Clock
  readonly log: Log
  readonly http: Upstream
  /** Creates the upstream over HTTP+SSE on first use. */
  readonly sse: () => OldUpstream
}

/** Statuses for `initialize` from servers without Streamable HTTP. */
const notStreamable: ReadonlySet<number | undefined> = new Set([400, 404, 405])

/** How long an event stream may take to name its endpoint, always its first event, in milliseconds. */
const ENDPOINT_MS: Millis = 3_000

/**
 * A server whose transport is found out by the rule of the specification. The transport is HTTP+SSE if the server
 * refuses `initialize` with 400, 404 or 405 and answers a GET with an event stream that names an endpoint. Otherwise it
 * is Streamable HTTP. While the server is unreachable or refuses both transports, the next caller tries again.
 */
export class TransportUpstream implements Upstream {
  readonly #options: TransportOptions
  #made: OldUpstream | undefined
  #known: KnownTransport | undefined
  /** Whether HTTP+SSE has failed since it was found: the next caller tries Streamable HTTP first. */
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

  /** Probes over Streamable HTTP, because both upstreams have the same address. */
  probe(signal: Signal): Promise<boolean> {
    return this.#options.http.probe?.(signal) ?? Promise.resolve(false)
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (this.#known?.transport !== 'sse' || this.#isInDoubt) return this.#openHttp(caller, signal)
    try {
      return await this.#sse.open(caller, signal)
    } catch (error) {
      // A Streamable HTTP server may run at this address now. It may refuse the stream, or open a stream that stays
      // silent.
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
        const hint = 'the server speaks HTTP+SSE: write "type: sse" in its entry, or leave "type" out'
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
