import { readFileSync, statSync } from 'node:fs'
import { whyUnreadable } from '../../config/files/read-text.ts'
import type { Layer } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { type Calls } from './calls.ts'
import { callsTo, type HttpEngineName } from './call-sockets.ts'
import { connectorOf } from '../../wire/connector.ts'
import type { ReplyLimits } from './http-reply.ts'
import { OneWayPosts } from './one-way-posts.ts'
import type { Skipped } from '../skipped.ts'
import type { SessionStates } from '../shared/session-state.ts'
import type { TaskBinding } from '../shared/task-binding.ts'
import { ShapedCalls } from '../../wire/shaped-connection.ts'
import { StreamConnections } from './stream-connections.ts'

/** Paths of PEM files. */
interface TlsOptions {
  readonly ca?: string | undefined
  readonly cert?: string | undefined
  readonly key?: string | undefined
  readonly rejectUnauthorized: boolean
}

/**
 * Returns socket options with the contents of the files. Throws for an unreadable file; the error names only the config
 * key.
 */
export function readTls(tls: TlsOptions | undefined) {
  if (tls === undefined) return {}
  const { ca, cert, key, rejectUnauthorized } = tls
  return {
    rejectUnauthorized,
    ...(ca === undefined ? {} : { ca: contentsOf('ca', ca) }),
    ...(cert === undefined ? {} : { cert: contentsOf('cert', cert) }),
    ...(key === undefined ? {} : { key: contentsOf('key', key) }),
  }
}

/** Returns the contents of a regular file. Reading a pipe or a device may never end, while all calls wait. */
function contentsOf(key: string, file: string): Buffer {
  try {
    if (!statSync(file).isFile()) throw new Error('it is no regular file')
    return readFileSync(file)
  } catch (error) {
    throw new Error(`tls.${key} cannot be read: ${whyUnreadable(error)}`, { cause: error })
  }
}

export interface HttpOptions extends ReplyLimits {
  readonly server: string
  /** The endpoint, path included. */
  readonly url: string
  /** Headers sent with every request. */
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent to pass on, old names to new names. */
  readonly forwardHeaders: Readonly<Record<string, string>>
  /** Most sockets for calls; open streams use separate sockets. */
  readonly connections: number
  /** `discovery` limits a handshake, and the acknowledgement of a message without a reply. */
  readonly timeouts: { readonly connect: Millis; readonly idle: Millis; readonly discovery: Millis }
  /**
   * The reaction to a session that the server forgot: `transparent` opens a new session, `surface` returns an error.
   */
  readonly sessionRecovery: 'transparent' | 'surface'
  readonly tls?: TlsOptions | undefined
  /** The engine of calls; default `node`. */
  readonly http?: HttpEngineName | undefined
  /** The callers' state at the server; moves with the callers between replicas. */
  readonly states: SessionStates
  /** The owners of the server's tasks, across all replicas; used only for servers without sessions. */
  readonly tasks: TaskBinding
  readonly clock: Clock
  /** Logs events that are no JSON-RPC message, except an event that may be the answer to a call. */
  readonly skipped?: Skipped | undefined
  /** Called when the server does not speak the request's protocol version. */
  readonly onVersionError?: (() => void) | undefined
  /** Faults of the handshakes and pings of upstream sessions; optional. */
  readonly faults?: Layer | undefined
}

/** The sockets to one replica: for short requests, and for open streams. */
export interface Pools {
  readonly calls: Calls
  readonly oneWay: OneWayPosts
  readonly streams: Pick<StreamConnections, 'dispatch' | 'destroy'>
  /** For requests whose replies a fault changes. Absent if the replies of all calls come over one stream. */
  readonly shaped?: ShapedCalls
  /** For open streams that a fault changes. */
  readonly shapedStreams?: ShapedCalls
}

/** Creates the pools; sockets open on demand. */
export function openPools({ url, connections, timeouts, tls, http }: HttpOptions): Pools {
  const { origin } = new URL(url)
  const headersTimeout = timeouts.idle
  const socket = { timeout: timeouts.connect, ...readTls(tls) }
  const connect = connectorOf(socket)
  const ofRequests = { connections, headersTimeout, bodyTimeout: timeouts.idle }
  return {
    calls: callsTo(origin, { ...ofRequests, connect: socket }, http),
    oneWay: new OneWayPosts(origin, { ...ofRequests, connect, pipelining: 1 }),
    streams: new StreamConnections(origin, { headersTimeout, bodyTimeout: 0, connect }),
    shaped: new ShapedCalls(origin, connections, { headersTimeout, bodyTimeout: timeouts.idle }, socket),
    shapedStreams: new ShapedCalls(origin, Infinity, { headersTimeout, bodyTimeout: 0 }, socket),
  }
}

export async function closePools(pools: Pools): Promise<void> {
  const { calls, oneWay, streams, shaped, shapedStreams } = pools
  const all = [calls, oneWay, streams, shaped, shapedStreams]
  await Promise.all(all.map(async (pool) => pool?.destroy()))
}
