import { connect, type Socket } from 'node:net'

/** Opens a connection for `onEnd`. */
export function dial(url: URL): Socket {
  return connect({ port: Number(url.port), host: url.hostname, allowHalfOpen: true }).setNoDelay()
}

/**
 * Reports how a connection ended: `end`, or the code of an error. To a late reader, a reset right after data looks like
 * an end; only a write tells the two apart.
 */
export function onEnd(socket: Socket, tell: (how: string) => void): void {
  socket.once('error', ({ code }: NodeJS.ErrnoException) => tell(String(code)))
  socket.once('end', () => socket.write('\r\n', (error) => tell(error ? 'ECONNRESET' : 'end')))
}
