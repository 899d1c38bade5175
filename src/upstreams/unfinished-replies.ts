import { gatewayError, type GatewayError } from '../mesh/errors.ts'

export interface UnfinishedLimits {
  /** Most that may have come of all incomplete replies, in bytes; never less than one largest reply. */
  readonly total: number
  /** The same for one server. */
  readonly perServer: number
}

/** The limits that may end a reply, as the metric names them. */
export const unfinishedCauses = ['total', 'per_server'] as const

export type UnfinishedCause = (typeof unfinishedCauses)[number]

/** A reply that is not complete. */
export interface UnfinishedReply {
  /** Drops it; what it holds is given back before this returns. */
  abort(error: GatewayError): void
}

/**
 * Bounds the memory for incomplete replies, of all servers together. A server that sends most of a large reply and
 * then falls silent has the gateway hold the reply until the call times out. When a limit is exceeded, the reply that
 * has waited the longest for more is ended. The reply is chosen from the server that exceeds its share, or else from the
 * server that holds the most. So no server can take the memory that is for all.
 */
export class UnfinishedReplies {
  /** The servers whose replies hold something. */
  readonly #servers = new Set<ServerReplies>()
  readonly #refused: (cause: UnfinishedCause) => void
  /** The limits in force; a reload sets others. */
  limits: UnfinishedLimits
  #bytes = 0

  /** `refused` is told of each reply that is ended here. */
  constructor(limits: UnfinishedLimits, refused: (cause: UnfinishedCause) => void) {
    this.limits = limits
    this.#refused = refused
  }

  /** Size of all that is held, in bytes. */
  get bytes(): number {
    return this.#bytes
  }

  /** The part of one server, no reply of which is larger than `maxReply`, in bytes. */
  of(maxReply: number): ServerReplies {
    return new ServerReplies(this, maxReply)
  }

  /** The part of a server has changed by so many bytes. */
  changed(server: ServerReplies, bytes: number): void {
    this.#bytes += bytes
    if (server.bytes === 0) this.#servers.delete(server)
    else this.#servers.add(server)
    if (bytes > 0) this.#keepLimits(server)
  }

  #keepLimits(server: ServerReplies): void {
    const total = Math.max(this.limits.total, server.maxReply)
    const perServer = Math.max(this.limits.perServer, server.maxReply)
    while (server.bytes > perServer && this.#endOne(server, 'per_server', perServer));
    while (this.#bytes > total) {
      const most = this.#most()
      if (most === undefined || !this.#endOne(most, 'total', total)) return
    }
  }

  #most(): ServerReplies | undefined {
    let most: ServerReplies | undefined
    for (const server of this.#servers)
      if (server.idlest !== undefined && server.bytes > (most?.bytes ?? 0)) most = server
    return most
  }

  /** False when the server has none that could be ended. */
  #endOne(server: ServerReplies, cause: UnfinishedCause, limit: number): boolean {
    const reply = server.idlest
    if (reply === undefined) return false
    this.#refused(cause)
    reply.abort(cause === 'total' ? overTotal(this.#bytes, limit) : overShare(server.bytes, limit))
    return true
  }
}

/** The replies of one server that are not complete. */
export class ServerReplies {
  readonly maxReply: number
  /** Size of all that the replies hold, in bytes; includes complete replies that wait to be read. */
  bytes = 0
  readonly #all: UnfinishedReplies
  /** In the order in which something last came: the first reply has waited the longest. */
  readonly #replies = new Set<UnfinishedReply>()

  constructor(all: UnfinishedReplies, maxReply: number) {
    this.#all = all
    this.maxReply = maxReply
  }

  /** The one that is the first to be ended. */
  get idlest(): UnfinishedReply | undefined {
    return this.#replies.values().next().value
  }

  /** A reply holds so many bytes more, `held` in all. It may be aborted before this returns. */
  hold(reply: UnfinishedReply, more: number, held: number): void {
    this.#replies.delete(reply)
    if (held > 0) this.#replies.add(reply)
    this.bytes += more
    this.#all.changed(this, more)
  }

  /** A reply is complete: what it holds is given back as soon as it is read, and it is not ended any more. */
  complete(reply: UnfinishedReply): void {
    this.#replies.delete(reply)
  }
}

/** The limit of one server was met: that says nothing of it, as many calls at a time may be what is too much. */
function overShare(bytes: number, limit: number): GatewayError {
  const message = `the server's unfinished replies hold ${bytes} bytes (at most ${limit}; gateway.limits.memory), and this one has waited the longest for more`
  return gatewayError('overloaded', message, { sent: true })
}

/** The total limit was met, not that of one server. */
function overTotal(bytes: number, limit: number): GatewayError {
  const message = `unfinished replies of all servers hold ${bytes} bytes (at most ${limit}; gateway.limits.memory), and this one has waited the longest for more`
  return gatewayError('overloaded', message, { sent: true })
}
