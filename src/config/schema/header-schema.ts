import { z } from 'zod'
import { secrets } from '../secrets/secrets.ts'

export const headerName = z.string().regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/, 'expected a header name')

const headerValue = z
  .string()
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'expected a header value: one line of Latin-1 text')

/**
 * Headers of a single connection (RFC 9110, section 7.6.1), and headers such as `expect`, which the gateway answers.
 */
export const hopByHop: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** Headers set by the connection, the message format or the protocol; a config cannot set these headers. */
const reserved = new Set([
  ...hopByHop,
  'accept',
  'accept-encoding',
  'content-encoding',
  'content-length',
  'content-type',
  'host',
  'last-event-id',
])

const isReserved = (name: string) => reserved.has(name) || name.startsWith('mcp-')

/** Headers with an agent's own credentials. */
const credentials = new Set(['authorization', 'cookie'])

const complaint = (message: string, ...path: (string | number)[]) => ({
  code: 'custom' as const,
  message,
  path,
})

export const headers = z
  .record(headerName, headerValue)
  .superRefine((given, context) => {
    const seen = new Set<string>()
    for (const name of Object.keys(given)) {
      const lower = name.toLowerCase()
      if (lower !== 'host' && isReserved(lower)) {
        context.addIssue(complaint('is set by the gateway; it cannot be configured', name))
      } else if (seen.has(lower)) {
        context.addIssue(complaint('the same header twice; case makes no difference', name))
      }
      seen.add(lower)
    }
  })
  .register(secrets, { secrecy: 'text' })

/** Returns the reason why a header of the agent may not be passed on; undefined if it may. */
function refusal(from: string, to: string, isMap: boolean): string | undefined {
  const header = [from, to].find(isReserved)
  if (header !== undefined)
    return `"${header}" belongs to one connection or to the protocol and is never passed on`
  if (from === 'authorization') {
    return (
      "the agent's Authorization is for this gateway and is never passed on; " +
      'have agents send a header of its own and map it: { x-user-token: authorization }'
    )
  }
  if (!isMap && credentials.has(from))
    return `"${from}" holds credentials; pass it on by a map: { ${from}: ${to} }`
  return undefined
}

/**
 * Schema for forwarded headers of the agent: a list, or a map from the agent's header to the server's. Parses to a map
 * in lower case.
 */
export const forwardHeaders = z
  .union([z.array(headerName).max(64), z.record(headerName, headerName)])
  .transform((given, context): Record<string, string> => {
    const pairs = Array.isArray(given)
      ? given.map((name, index) => ({ at: index, from: name, to: name }))
      : Object.entries(given).map(([from, to]) => ({ at: from, from, to }))
    const forwarded = new Map<string, string>()
    const targets = new Set<string>()
    for (const pair of pairs) {
      const from = pair.from.toLowerCase()
      const to = pair.to.toLowerCase()
      const problem =
        refusal(from, to, !Array.isArray(given)) ??
        (forwarded.has(from) || targets.has(to)
          ? `"${to}" would be sent twice; case makes no difference`
          : undefined)
      if (problem !== undefined) context.addIssue(complaint(problem, pair.at))
      forwarded.set(from, to)
      targets.add(to)
    }
    return Object.fromEntries(forwarded)
  })
