import type { ServerConfig } from '../config/schema/schema.ts'
import type { HttpServerConfig } from '../config/schema/server-schema.ts'
import type { Layer } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Log } from '../telemetry/log.ts'
import { EraUpstream } from './era.ts'
import { HttpUpstream } from './http/http.ts'
import { SessionStates } from './shared/session-state.ts'
import { type ModernHttpOptions, ModernHttpUpstream } from './modern/modern-http.ts'
import { TaskBinding } from './shared/task-binding.ts'
import { ToolCallRules } from './modern/tool-call-rules.ts'
import { SseUpstream } from './sse/sse.ts'
import { type StdioOptions, StdioUpstream } from './stdio/stdio.ts'
import { TransportUpstream } from './transport.ts'
import type { UnfinishedReplies } from './unfinished-replies.ts'
import type { Upstream } from './upstream.ts'

interface UpstreamParts {
  readonly clock: Clock
  readonly log: Log
  /** The `initialize` params of the gateway itself, for upstream sessions that no single caller owns. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** What is kept of replies of all servers until they are complete. */
  readonly replies: UnfinishedReplies
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
      const tasks = new TaskBinding(parts.clock)
      const states = new SessionStates()
      return config.urls.map((url) => {
        const options = { ...config, ...parts, server, url, tools, tasks, states, unfinished }
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
