import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * Binds a free loopback port, says so on stdout in the words of the gateway's own log, and goes on SIGTERM.
 * The exit is an orderly one, so that a profile under way is written.
 */
export function serve(server: Server): void {
  // Longer than a round: a connection that waits for its next turn is not to be reopened.
  server.keepAliveTimeout = 120_000
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo
    process.stdout.write(`${JSON.stringify({ msg: 'listening', data: `http://127.0.0.1:${port}` })}\n`)
  })
  process.once('SIGTERM', () => process.exit(0))
}
