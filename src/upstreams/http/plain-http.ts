import { Pool } from 'undici'
import type { HttpServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { transportError } from './http-reply.ts'
import { basicAuth } from './http-wire.ts'
import { readTls } from './tls.ts'

/** A server as one reaches it by plain HTTP: the folder in which its MCP endpoint is, and all below it. */
export interface PlainHttp {
  readonly origin: string
  /** Begins and ends with a slash: `/` for `http://host/mcp`, `/base/` for `http://host/base/mcp`. */
  readonly folder: string
  /** What the operator wants sent with every request; names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Sockets of its own, so that nothing of this keeps calls waiting. */
  readonly pool: Pool
}

/** Of several replicas, the first. A socket is opened when it is needed, and closes when it is idle. */
export function openPlainHttp({ urls, headers, connections, timeouts, tls }: HttpServerConfig): PlainHttp {
  const url = new URL(urls[0] as string)
  const [, credentials] = basicAuth(url.username, url.password)
  const configured = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])
  return {
    origin: url.origin,
    folder: new URL('.', url).pathname,
    headers: {
      ...(credentials === undefined ? {} : { authorization: credentials }),
      ...(Object.fromEntries(configured) as Record<string, string>),
    },
    pool: new Pool(url.origin, {
      connections,
      pipelining: 1,
      headersTimeout: timeouts.idle,
      bodyTimeout: timeouts.idle,
      connect: { timeout: timeouts.connect, ...readTls(tls) },
    }),
  }
}

/** Why a request over it failed. It may have run unless there was no connection at all. */
export function plainHttpError(cause: Error & { readonly code?: string }): GatewayError {
  if (cause.code === 'UND_ERR_CONNECT_TIMEOUT')
    return gatewayError('attempt_timeout', 'no connection to the server in time (timeouts.connect)')
  const unsent = transportError(cause, false)
  return unsent.reason === 'upstream_unavailable' ? unsent : transportError(cause, true)
}
