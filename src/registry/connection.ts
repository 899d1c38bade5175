import { configHash } from '../config/hash.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import type { HttpServerConfig, StdioServerConfig } from '../config/schema/server-schema.ts'

/**
 * Settings that do not affect a server's connections, such as filters, timeouts and health checks. A change of any
 * other setting, including settings added later, opens new connections.
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

/**
 * Settings that do not affect a stdio server's process: a process has no sockets, and the gateway itself bounds its
 * output.
 */
const detachedOfProcess: ReadonlySet<string> = new Set<keyof StdioServerConfig>(['maxReply', 'processes'])

/** A cache: unchanged entries are the same objects after a reload. */
const known = new WeakMap<ServerConfig, string>()

/** Returns the identity of a server's connections, 16 hex digits. Entries of equal identity can share connections. */
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
 * Returns the identity of each replica's endpoint, 16 hex digits. The identity depends on address, transport and
 * credentials, not on the position in the config. The identity is a hash, so secrets cannot be recovered.
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
    // The same address twice means two replicas with separate state.
    return times === 1 ? endpoint : `${endpoint}-${times}`
  })
}
