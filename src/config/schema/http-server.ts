import { z } from 'zod'
import { forwardHeaders, headers } from './header-schema.ts'
import { secrets } from '../secrets/secrets.ts'
import { serverSettings, silentKeys, withoutSilent } from './server-settings.ts'

const httpUrl = z
  .string()
  .regex(/^https?:\/\/[^\s#]+$/i, 'expected an http:// or https:// URL without #')
  .refine((text) => URL.canParse(text), 'expected an http:// or https:// URL')
  .register(secrets, { secrecy: 'url' })

const file = z.string().min(1)

const tls = z
  .strictObject({
    ca: file.optional().describe('File with the certificates to trust, PEM.'),
    cert: file.optional().describe('File with the client certificate, PEM.'),
    key: file.optional().describe('File with its key, PEM.'),
    rejectUnauthorized: z
      .boolean()
      .default(true)
      .describe('Whether to refuse a certificate that is not trusted. Never false outside a test.'),
  })
  .refine(({ cert, key }) => (cert === undefined) === (key === undefined), '"cert" and "key" go together')
  .describe('How https:// is verified.')

/** A server that is reached over HTTP: Streamable HTTP, or the older HTTP+SSE. */
export const httpServer = z
  .strictObject({
    type: z
      .enum(['http', 'streamable-http', 'streamableHttp', 'sse'])
      .default('http')
      .describe('`http` follows from `url`; `sse` is the older HTTP+SSE.'),
    url: httpUrl.optional().describe('Where it is.'),
    urls: z.array(httpUrl).min(1).max(64).optional().describe('Where its replicas are, instead of `url`.'),
    headers: headers.default({}).describe('Sent with every request.'),
    era: z
      .enum(['auto', 'legacy', 'modern'])
      .default('auto')
      .describe(
        'Versions of the protocol to speak: up to 2025-11-25 (`legacy`), 2026-07-28 (`modern`), or those of each client, if the server speaks them (`auto`).',
      ),
    forwardHeaders: forwardHeaders
      .prefault([])
      .describe(
        "Request headers of the agent that are passed on: a list, or a map from the agent's name to the server's. " +
          'Cookies only in a map; `Authorization` of the agent never, yet a header of its own may become it. ' +
          'A session is bound to those that its `initialize` came with: a later request of it with others, or without, gets a 404.',
      ),
    sessionRecovery: z
      .enum(['transparent', 'surface'])
      .default('transparent')
      .describe('What follows when the server forgot a session: a new one, or a 404 to the agent.'),
    connections: z.number().int().min(1).max(4_096).default(256).describe('Sockets for calls, per replica.'),
    tls: tls.optional(),
    passthrough: z
      .boolean()
      .default(false)
      .describe(
        'Opens /proxy/{server}/*, which forwards plain HTTP to the folder of its first URL and below (http://host/base/ for http://host/base/mcp), past policies and filters of tools.',
      ),
    ...serverSettings,
    ...silentKeys,
  })
  .meta({
    title: 'HTTP server',
    description: 'A server that is reached over HTTP.',
    oneOf: [{ required: ['url'] }, { required: ['urls'] }],
  })
  .transform((given, context) => {
    const { type, url, urls, ...rest } = given
    if (url !== undefined && urls !== undefined) {
      context.addIssue({ code: 'custom', message: 'says the same as "url"; keep one', path: ['urls'] })
    }
    if (url === undefined && urls === undefined) {
      context.addIssue({ code: 'custom', message: 'missing; expected the URL of the server', path: ['url'] })
    }
    if (type === 'sse' && given.era === 'modern') {
      context.addIssue({ code: 'custom', message: 'HTTP+SSE is of the legacy era', path: ['era'] })
    }
    return {
      type: type === 'sse' ? ('sse' as const) : ('http' as const),
      urls: urls ?? (url === undefined ? [] : [url]),
      ...withoutSilent(rest),
    }
  })

export type HttpServerConfig = z.output<typeof httpServer>
