import { z } from 'zod'
import { httpServer } from './http-server.ts'
import { isPlainMap } from './plain-map.ts'
import { silentKeys } from './server-settings.ts'
import { stdioServer } from './stdio-server.ts'
import { suggest } from '../issues/suggest.ts'

export { httpServer, type HttpServerConfig } from './http-server.ts'
export { stdioServer, type StdioServerConfig } from './stdio-server.ts'

/** Tells the two kinds of server apart as editors do: by `type` or `transport`, else by what is given. */
function withType(given: unknown, context: z.core.$RefinementCtx): unknown {
  if (!isPlainMap(given)) return given
  const name = given.type === undefined ? 'transport' : 'type'
  const type = given[name]
  const known = silentKeys.transport.unwrap().options
  if (type !== undefined && !known.some((option) => option === type)) {
    context.addIssue({ code: 'invalid_value', values: known, path: [name], input: type })
  }
  if (name === 'type' && given.transport !== undefined) {
    context.addIssue({ code: 'custom', message: 'says the same as "type"; keep one', path: ['transport'] })
  }
  const url = ['url', 'urls'].find((key) => key in given)
  if ('command' in given && url !== undefined) {
    context.addIssue({ code: 'custom', message: 'a server has "command" or "url", not both', path: [url] })
  }
  if (type !== undefined) return { ...given, type }
  if ('command' in given) return { ...given, type: 'stdio' }
  if (url !== undefined) return { ...given, type: 'http' }
  // A typing error is reported by the schema of the kind that was most likely meant.
  const meant = Object.keys(given)
    .map((key) => suggest(key, ['command', 'url', 'urls']))
    .find(Boolean)
  if (meant !== undefined) return { ...given, type: meant === 'command' ? 'stdio' : 'http' }
  context.addIssue({ code: 'custom', message: 'expected a "command" to run or a "url" to reach' })
  return given
}

/** One entry of `mcpServers`. */
export const server = z.preprocess(withType, z.discriminatedUnion('type', [stdioServer, httpServer])).meta({
  id: 'server',
  description: 'A program to run (`command`) or an endpoint to reach (`url` or `urls`).',
})

export type ServerConfig = z.output<typeof server>
