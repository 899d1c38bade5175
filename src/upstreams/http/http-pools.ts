import { readFileSync, statSync } from 'node:fs'
import { Pool } from 'undici'
import { whyUnreadable } from '../../config/files/read-text.ts'
import type { Layer } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { connectorOf } from '../../wire/connector.ts'
import type { ReplyLimits } from './http-reply.ts'
import { OneWayPosts } from './one-way-posts.ts'
import type { Skipped } from '../skipped.ts'
import type { SessionStates } from '../shared/session-state.ts'
import type { TaskBinding } from '../shared/task-binding.ts'
import { ShapedCalls } from '../../wire/shaped-connection.ts'
import { StreamConnections } from './stream-connections.ts'

/** Files in PEM, by what they hold. */
interface TlsOptions {
  readonly ca?: string | undefined
  readonly cert?: string | undefined
  readonly key?: string | undefined
  readonly rejectUnauthorized: boolean
}

/** The options of a socket, with the contents of the named files. Throws for a file that cannot be read; the error names its key only. */
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

/** A pipe would wait for whoever writes to it, and a device may have no end, while all calls wait. */
function contentsOf(key: string, file: string): Buffer {
  try {
    if (!statSync(file).isFile()) throw new Error('it is no regular file')
    return readFileSync(file)
  } catch (error) {
    throw new Error(`tls.${key} cannot be read: ${whyUnreadable(error)}`, { cause: error })
  }
}

/** How a server is reached over Streamable HTTP. */
export interface HttpOptions extends ReplyLimits {
  /** The server's name in the registry. */
  readonly server: string
  /** The endpoint, path included. */
  readonly url: string
  /** Sent with every request. */
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent that are passed on, old names to new ones. */
  readonly forwardHeaders: Readonly<Record<string, string>>
  /** Sockets for calls; streams that stay open have sockets of their own and take none of these. */
  readonly connections: number
  /** `discovery` bounds a handshake, and how long a message without a reply may take to be acknowledged. */
  readonly timeouts: { readonly connect: Millis; readonly idle: Millis; readonly discovery: Millis }
  /** The reaction to a session that the server forgot: a new session, or an error. */
  readonly sessionRecovery: 'transparent' | 'surface'
  readonly tls?: TlsOptions | undefined
  /** The state that callers asked the server to keep in mind: goes with the callers from one replica to another. */
  readonly states: SessionStates
  /** The owners of the server's tasks, over all its replicas; asked only where the server has no sessions. */
  readonly tasks: TaskBinding
  readonly clock: Clock
  /** Takes events that are no message and cannot be the answer to a call. */
  readonly skipped?: Skipped | undefined
  /** Told when the server does not speak the version of the protocol that it is spoken to in. */
  readonly onVersionError?: (() => void) | undefined
  /** Faults of the handshakes and pings that upstream sessions need for themselves; none unless given. */
  readonly faults?: Layer | undefined
}

/** The sockets to one replica: for requests that end, and for streams that stay open. */
export interface Pools {
  readonly calls: Pool
  readonly oneWay: OneWayPosts
  readonly streams: Pick<StreamConnections, 'dispatch' | 'destroy'>
  /** For requests with replies whose bytes faults shape; only where calls have replies of their own. */
  readonly shaped?: ShapedCalls
  /** The same for replies that stay open. */
  readonly shapedStreams?: ShapedCalls
}

/** Makes the pools; a socket is opened when it is needed. */
export function openPools({ url, connections, timeouts, tls }: HttpOptions): Pools {
  const { origin } = new URL(url)
  const headersTimeout = timeouts.idle
  const socket = { timeout: timeouts.connect, ...readTls(tls) }
  const connect = connectorOf(socket)
  const ofRequests = { pipelining: 1, headersTimeout, bodyTimeout: timeouts.idle, connect }
  return {
    calls: new Pool(origin, { ...ofRequests, connections }),
    oneWay: new OneWayPosts(origin, { ...ofRequests, connections }),
    streams: new StreamConnections(origin, { headersTimeout, bodyTimeout: 0, connect }),
    shaped: new ShapedCalls(origin, connections, { headersTimeout, bodyTimeout: timeouts.idle }, socket),
    shapedStreams: new ShapedCalls(origin, Infinity, { headersTimeout, bodyTimeout: 0 }, socket),
  }
}

/** Drops all sockets, and what goes on over them. */
export async function closePools(pools: Pools): Promise<void> {
  const { calls, oneWay, streams, shaped, shapedStreams } = pools
  const all = [calls, oneWay, streams, shaped, shapedStreams]
  await Promise.all(all.map(async (pool) => pool?.destroy()))
}
