import { Pool } from 'undici'
import type { HttpOptions } from './http-options.ts'
import { readTls } from './tls.ts'

/** The sockets to one replica: for requests that end, and for streams that stay open. */
export interface Pools {
  readonly calls: Pool
  readonly streams: Pool
}

/** Makes the pools; a socket is opened when it is needed. */
export function openPools({ url, connections, timeouts, tls }: HttpOptions): Pools {
  const { origin } = new URL(url)
  const headersTimeout = timeouts.idle
  const connect = { timeout: timeouts.connect, ...readTls(tls) }
  return {
    calls: new Pool(origin, {
      connections,
      pipelining: 1,
      headersTimeout,
      bodyTimeout: timeouts.idle,
      connect,
    }),
    streams: new Pool(origin, { pipelining: 1, headersTimeout, bodyTimeout: 0, connect }),
  }
}

/** Drops all sockets, and what goes on over them. */
export async function closePools({ calls, streams }: Pools): Promise<void> {
  await Promise.all([calls.destroy(), streams.destroy()])
}
