import type { ServerConfig } from '../config/schema.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Log } from '../telemetry/log.ts'
import { HttpUpstream } from './http.ts'
import { SseUpstream } from './sse.ts'
import { StdioUpstream } from './stdio.ts'
import type { Upstream } from './upstream.ts'

export interface UpstreamParts {
  readonly clock: Clock
  readonly log: Log
  /** The `initialize` params of the gateway itself, for conversations that no single caller owns. */
  readonly hello: Readonly<Record<string, unknown>>
}

/** The replicas of a server: one for a process, one per URL otherwise. A new type of server is one more case. */
export function createUpstreams(server: string, config: ServerConfig, parts: UpstreamParts): Upstream[] {
  switch (config.type) {
    case 'stdio':
      return [new StdioUpstream({ server, config, ...parts })]
    case 'http':
      return config.urls.map((url) => new HttpUpstream({ ...config, server, url, clock: parts.clock }))
    case 'sse':
      return config.urls.map((url) => new SseUpstream({ server, config, url, ...parts }))
  }
}
