import { gatewayError, type GatewayError } from '../mesh/errors.ts'

export interface UnfinishedLimits {
  /** Most buffered bytes of all incomplete replies; never less than one largest reply. */
  readonly total: number
  /** The same per server. */
  readonly perServer: number
}

/** The limits that may end a reply, as named in the metric. */
export const unfinishedCauses = ['total', 'per_server'] as const

export type UnfinishedCause = (typeof unfinishedCauses)[number]

export interface UnfinishedReply {
  /** Drops the reply; frees its buffers before returning. */
  abort(error: GatewayError): void
}

/**
 * Limits the memory for incomplete replies of all servers. A server may send most of a large reply and fall silent; the
 * gateway then buffers the reply until the call times out. Above a limit, the reply that has waited longest for data is
 * ended. Above the limit per server, this is a reply of that server; above the total limit, a reply of the server with
 * the most bytes. So no server can take all the memory.
 */
export class UnfinishedReplies {
  readonly #servers = new Set<ServerReplies>()
  readonly #refused: (cause: UnfinishedCause) => void
  /** The current limits; a reload sets new limits. */
  limits: UnfinishedLimits
  #bytes = 0

  /** `refused` is called for each reply ended here. */
  constructor(limits: UnfinishedLimits, refused: (cause: UnfinishedCause) => void) {
    this.limits = limits
    this.#refused = refused
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Returns the counter of buffered bytes for one server; `maxReply`: its largest reply, in bytes. */
  of(maxReply: number): ServerReplies {
    return new ServerReplies(this, maxReply)
  }

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

  /** Returns false when the server has no reply to end. */
  #endOne(server: ServerReplies, cause: UnfinishedCause, limit: number): boolean {
    const reply = server.idlest
    if (reply === undefined) return false
    this.#refused(cause)
    reply.abort(cause === 'total' ? overTotal(this.#bytes, limit) : overShare(server.bytes, limit))
    return true
  }
}

export class ServerReplies {
  readonly maxReply: number
  /** Buffered bytes, including complete but unread replies. */
  bytes = 0
  readonly #all: UnfinishedReplies
  /** Ordered by latest data: the first reply has waited the longest. */
  readonly #replies = new Set<UnfinishedReply>()

  constructor(all: UnfinishedReplies, maxReply: number) {
    this.#all = all
    this.maxReply = maxReply
  }

  /** The first reply to end. */
  get idlest(): UnfinishedReply | undefined {
    return this.#replies.values().next().value
  }

  /** Adds buffered bytes of a reply, `held` in all. May abort the reply before returning. */
  hold(reply: UnfinishedReply, more: number, held: number): void {
    this.#replies.delete(reply)
    if (held > 0) this.#replies.add(reply)
    this.bytes += more
    this.#all.changed(this, more)
  }

  /** Marks a reply as complete: its bytes are freed once read, and the reply is not ended any more. */
  complete(reply: UnfinishedReply): void {
    this.#replies.delete(reply)
  }
}

/**
 * Returns the error of a reply ended by the limit per server. The server need not be at fault: too many simultaneous
 * calls may be the cause.
 */
function overShare(bytes: number, limit: number): GatewayError {
  const message = `the server's unfinished replies hold ${bytes} bytes (at most ${limit}; gateway.limits.memory), and this reply has waited the longest for more`
  return gatewayError('overloaded', message, { sent: true })
}

/** Returns the error of a reply ended by the total limit. */
function overTotal(bytes: number, limit: number): GatewayError {
  const message = `unfinished replies of all servers hold ${bytes} bytes (at most ${limit}; gateway.limits.memory), and this reply has waited the longest for more`
  return gatewayError('overloaded', message, { sent: true })
}
