import {
  createServer,
  ServerResponse,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http'
import type { Socket } from 'node:net'
import { clientOf, type Quota, type Quotas } from '../downstream/quotas.ts'
import type { UnreadReplies } from '../downstream/unread-replies.ts'
import { nextTurn } from '../mesh/clock.ts'

/** What bounds the connections of a server. */
export interface ServerGuards {
  readonly quotas: Pick<Quotas, 'connections' | 'pipelined' | 'refused'>
  /** Replies that wait for clients which do not read them. */
  readonly unread: Pick<UnreadReplies, 'wrote'>
}

/**
 * Most requests of one connection that wait for the reply to an earlier one. Hardly any client sends the next request
 * before it has the reply to the last one, and those that do send a few. Whoever sends more is cut off instead of made
 * to wait: of a connection that is not read nobody hears that its client has left. Node stops reading by itself only
 * when the replies that wait have 16 KiB, and not before it is done with the 64 KiB of requests that came at once.
 */
export const MAX_PIPELINED = 64

/** The HTTP server of a plane, which neither keeps more connections nor more of their requests and replies than it may. */
export function createGuardedServer(listener: RequestListener, { quotas, unread }: ServerGuards): Server {
  class Reply extends ServerResponse {
    /** Whatever answers a request, and however small the answer: a client that does not read it is seen. */
    override end(chunk?: unknown, encoding?: unknown, done?: unknown): this {
      super.end(chunk, encoding as BufferEncoding, done as () => void)
      if (this.writableLength > 0) unread.wrote(this)
      return this
    }
  }
  const queues = new Queues(quotas)
  const guarded =
    (answer: RequestListener): RequestListener =>
    (request, response) => {
      // Node goes on with what came together, also when the connection was closed because of a part of it.
      if (request.socket.destroyed) return
      // What has the socket is in front: nothing else is under way on its connection.
      if (response.socket === null && !queues.take(request.socket, response)) return
      answer(request, response)
    }
  // What Node would answer by itself waits behind other requests, too: it is counted with them.
  const server = createServer(
    { ServerResponse: Reply, requireHostHeader: false },
    guarded((request, response) => {
      if (lacksHost(request)) response.writeHead(400, { connection: 'close' }).end()
      else listener(request, response)
    }),
  )
  server.on(
    'checkExpectation',
    guarded((_, response) => void response.writeHead(417).end()),
  )
  server.prependListener('connection', (socket: Socket) => limitConnection(socket, quotas.connections))
  return server
}

/** Whether a request does not name the host that it is for, as those of HTTP/1.1 have to. */
function lacksHost({ httpVersionMajor, httpVersionMinor, headers }: IncomingMessage): boolean {
  return headers.host === undefined && httpVersionMajor === 1 && httpVersionMinor === 1
}

/** Closes a connection at once when there are too many: an answer would cost more than it, and would have to be read. */
function limitConnection(socket: Socket, connections: Quota): void {
  const client = clientOf(socket.remoteAddress)
  if (connections.refusal(client) !== undefined) return void socket.destroy()
  connections.take(client)
  socket.once('close', () => connections.release(client))
}

/**
 * Closes a connection, and ends the reading of what came together with the last request. Node would make objects of all
 * of it, a thousand requests and more for each of many connections, and everybody else would wait until it has.
 */
function cutOff(socket: Socket): void {
  const { parser } = socket as Socket & { readonly parser?: { onIncoming: () => number } | null }
  // 2 stands for an upgrade: what follows is no HTTP, and is not read as such.
  if (parser) parser.onIncoming = () => 2
  socket.destroy()
}

/** The responses of a connection that wait for earlier ones. */
interface Queue {
  readonly client: string
  readonly responses: Set<ServerResponse>
}

/**
 * Responses that wait for earlier ones of their connection. They hear of its end here: Node closes only the one in front;
 * those behind it would wait for ever, and with them their calls and streams.
 */
class Queues {
  readonly #quotas: ServerGuards['quotas']
  readonly #queues = new WeakMap<Socket, Queue>()

  constructor(quotas: ServerGuards['quotas']) {
    this.#quotas = quotas
  }

  /** False when there are too many: then the connection is closed. */
  take(socket: Socket, response: ServerResponse): boolean {
    const { pipelined, refused } = this.#quotas
    const { client, responses } = this.#queues.get(socket) ?? this.#begin(socket)
    const isLong = responses.size >= MAX_PIPELINED
    if (isLong) refused('pipelined_per_connection')
    if (isLong || pipelined.refusal(client) !== undefined) {
      cutOff(socket)
      return false
    }
    responses.add(response)
    pipelined.take(client)
    const leave = () => {
      if (responses.delete(response)) pipelined.release(client)
    }
    response.once('socket', leave)
    response.once('close', leave)
    return true
  }

  #begin(socket: Socket): Queue {
    const responses = new Set<ServerResponse>()
    const queue = { client: clientOf(socket.remoteAddress), responses }
    this.#queues.set(socket, queue)
    socket.once('close', () => {
      for (const response of responses) response.destroy()
      // Node 24 closes them by itself: those have left the queue by then.
      void nextTurn().then(() => {
        for (const response of responses) response.emit('close')
      })
    })
    return queue
  }
}
