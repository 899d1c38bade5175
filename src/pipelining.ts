import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { nextTurn } from './mesh/clock.ts'

/**
 * Lets responses that wait for earlier ones of their connection hear of its end. Node closes only the one in front: those
 * behind it would wait for ever, and with them their calls and streams.
 */
export function closeQueuedResponses(server: Server): void {
  const queues = new WeakMap<Socket, Set<ServerResponse>>()
  const queueOf = (socket: Socket) => {
    const queue = new Set<ServerResponse>()
    socket.once('close', () => {
      for (const response of queue) response.destroy()
      // Node 24 closes them by itself: those have left the queue by then.
      void nextTurn().then(() => {
        for (const response of queue) response.emit('close')
      })
    })
    queues.set(socket, queue)
    return queue
  }
  server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    // It is in front: nothing else is under way on its connection.
    if (response.socket !== null) return
    const queue = queues.get(socket) ?? queueOf(socket)
    queue.add(response)
    response.once('socket', () => queue.delete(response))
    response.once('close', () => queue.delete(response))
  })
}
