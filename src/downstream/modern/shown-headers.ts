import type { Server } from '../../registry/server.ts'
import type { Visit } from '../visit.ts'

/** The headers of an agent that the servers which it looks onto get to see. */
export function shownHeaders(
  { front, headers }: Visit,
  servers: ReadonlyMap<string, Server>,
): Record<string, string> {
  const shown: Record<string, string> = {}
  if (front.server === undefined) for (const server of servers.values()) add(shown, server, headers)
  else add(shown, servers.get(front.server), headers)
  return shown
}

function add(shown: Record<string, string>, server: Server | undefined, headers: Visit['headers']): void {
  if (server === undefined || server.config.type === 'stdio') return
  for (const name in server.config.forwardHeaders) {
    const value = headers[name]
    if (typeof value === 'string') shown[name] = value
  }
}
