import { openPlainHttp, type PlainHttp } from '../upstreams/http/plain-http.ts'
import type { Server } from './server.ts'

export { plainHttpError, type PlainHttp } from '../upstreams/http/plain-http.ts'

const known = new WeakMap<Server, PlainHttp>()

/** The way to a server for plain HTTP, as long as it lives; undefined unless its entry says `passthrough: true`. */
export function plainHttpOf(server: Server): PlainHttp | undefined {
  const { config } = server
  if (config.type === 'stdio' || !config.passthrough) return undefined
  let way = known.get(server)
  if (way === undefined) known.set(server, (way = openPlainHttp(config)))
  return way
}
