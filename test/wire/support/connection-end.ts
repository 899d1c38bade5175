import { connect, type Socket } from 'node:net'

/** A connection on which `onEnd` can tell how it ended. */
export function dial(url: URL): Socket {
  return connect({ port: Number(url.port), host: url.hostname, allowHalfOpen: true }).setNoDelay()
}

/**
 * Tells how a connection ended: `end`, or the code of an error. To who reads late, a reset that came together with bytes
 * before it looks like an end: only a write tells them apart.
 */
export function onEnd(socket: Socket, tell: (how: string) => void): void {
  socket.once('error', ({ code }: NodeJS.ErrnoException) => tell(String(code)))
  socket.once('end', () => socket.write('\r\n', (error) => tell(error ? 'ECONNRESET' : 'end')))
}
