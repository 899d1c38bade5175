import type { IncomingMessage, ServerResponse } from 'node:http'

/** What a page may read of a reply besides its body and the headers that every page may read. */
const EXPOSED = 'Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Breakwater-Faults'

const METHODS = 'GET, POST, DELETE'

/** How long a browser need not ask again, in seconds: a reload may take a page's right away. */
const MAX_AGE_S = '600'

/** Names of headers as a browser lists them. */
const HEADER_NAMES = /^[\w-]+(?: *, *[\w-]+){0,99}$/

/**
 * Tells a browser that the page of `origin`, which is allowed to call, may read the reply to its request (Fetch standard,
 * section 3.3: CORS protocol). No cookies and no other credentials that a browser would add by itself. True when the request was
 * a preflight, which is answered by that.
 */
export function shareWith(origin: string, request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('access-control-allow-origin', origin)
  response.setHeader('access-control-expose-headers', EXPOSED)
  // What is kept for one page is not another's.
  response.setHeader('vary', 'Origin')
  const { headers, method } = request
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false
  const asked = headers['access-control-request-headers']
  response.writeHead(204, {
    'access-control-allow-methods': METHODS,
    // A page that may call may send what any other agent may.
    ...(asked !== undefined && HEADER_NAMES.test(asked) ? { 'access-control-allow-headers': asked } : {}),
    'access-control-max-age': MAX_AGE_S,
  })
  response.end()
  return true
}
