import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * Listens on loopback and prints the gateway's own log line. SIGTERM exits orderly, so node writes a running profile.
 */
export function serve(server: Server): void {
  // Longer than a round, so that a connection stays open until its next turn.
  server.keepAliveTimeout = 120_000
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo
    process.stdout.write(`${JSON.stringify({ msg: 'listening', data: `http://127.0.0.1:${port}` })}\n`)
  })
  process.once('SIGTERM', () => process.exit(0))
}
