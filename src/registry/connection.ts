import { configHash } from '../config/hash.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import type { HttpServerConfig, StdioServerConfig } from '../config/schema/server-schema.ts'

/**
 * The settings of a server that say what agents get of it and how the gateway looks after it. All others, those to come
 * included, are taken to be about its connections, which begin anew when one of them changes.
 */
const detached: ReadonlySet<string> = new Set<keyof HttpServerConfig | 'writtenName'>([
  'writtenName',
  'disabled',
  'trusted',
  'forwardBaggage',
  'protected',
  'tools',
  'deliver',
  'grace',
  'refresh',
  'maxList',
  'health',
  'passthrough',
  'timeout',
  'timeouts',
])

/** More of them where there is a process, which has no sockets, and of which what is read is bounded here. */
const detachedOfProcess: ReadonlySet<string> = new Set<keyof StdioServerConfig>(['maxReply', 'processes'])

/** Entries that did not change are the same objects after a reload. */
const known = new WeakMap<ServerConfig, string>()

/** A name for the connections of a server, 16 hex digits: entries for which it is the same can share them. */
export function connectionOf(entry: ServerConfig): string {
  let connection = known.get(entry)
  if (connection === undefined) known.set(entry, (connection = hashOf(entry)))
  return connection
}

function hashOf(entry: ServerConfig): string {
  const attached = Object.entries(entry).filter(([key]) => !detached.has(key))
  if (entry.type === 'stdio')
    return configHash([Object.fromEntries(attached.filter(([key]) => !detachedOfProcess.has(key)))])
  const { connect, idle } = entry.timeouts
  return configHash([Object.fromEntries(attached), connect, idle])
}

/**
 * The identity of each replica's endpoint: 16 hex digits, the same for as long as the same thing is reached in the same
 * way with the same credentials, wherever it stands in the config. Secrets go into it, and cannot be got out of it.
 */
export function endpointsOf(entry: ServerConfig): readonly string[] {
  if (entry.type === 'stdio') {
    const { command, args, env, cwd, era } = entry
    return [configHash({ command, args, env, cwd, era })]
  }
  const { type, urls, headers, tls, era } = entry
  const met = new Map<string, number>()
  return urls.map((url) => {
    const endpoint = configHash({ type, url, headers, tls, era })
    const times = (met.get(endpoint) ?? 0) + 1
    met.set(endpoint, times)
    // An address that is there twice is two replicas: what one of them does must not count for both.
    return times === 1 ? endpoint : `${endpoint}-${times}`
  })
}
