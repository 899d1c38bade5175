import { z } from 'zod'
import { globPattern } from '../../units/glob-schema.ts'
import { duration } from '../../units/duration.ts'
import { size } from '../../units/size.ts'
import { suggest } from '../../units/suggest.ts'
import { secrets } from '../secrets/secrets.ts'
import { clientKeyShape, withTimeoutUnit } from './client-keys.ts'
import { serverHealth } from './health-schema.ts'
import { forwardHeaders, headers } from './header-schema.ts'
import { httpUrl } from './http-url.ts'
import { isPlainMap } from './server-names.ts'

const globs = z.array(globPattern).max(1_000)

/** Settings of every server, whatever its transport. */
const serverSettings = {
  disabled: z.boolean().default(false).describe('Keeps the entry, but does not run the server.'),
  enabled: z.boolean().optional().describe('The opposite of `disabled`, as Zed writes it.'),
  trusted: z.boolean().default(false).describe("Whether the server's own annotations may be believed."),
  forwardBaggage: z
    .boolean()
    .default(false)
    .describe(
      'Whether the server gets the W3C baggage in `_meta` of agent requests. For headers see `forwardHeaders`.',
    ),
  protected: z
    .boolean()
    .default(false)
    .describe(
      'Whether faults spare the server: a plan or an injection that names the server is refused, and globs skip it.',
    ),
  tools: z
    .strictObject({
      include: globs.default(['*']).describe('Globs of tools to offer.'),
      exclude: globs.default([]).describe('Globs of tools to hide; wins over `include`.'),
    })
    .prefault({})
    .describe('The tools of the server that agents see.'),
  includeTools: globs.optional().describe('Another name for `tools.include`, as Gemini CLI writes it.'),
  excludeTools: globs.optional().describe('Another name for `tools.exclude`, as Gemini CLI writes it.'),
  disabledTools: globs.optional().describe('Another name for `tools.exclude`, as Roo Code writes it.'),
  timeout: duration({ min: 1 })
    .optional()
    .describe(
      'Longest duration of a call. Works like a first entry of `policies.overrides`, which sets `attemptTimeout` and extends a shorter `deadline`. For a bare number, the other keys decide between seconds (Cline, Roo Code) and milliseconds (Gemini CLI, Claude Code).',
    ),
  timeouts: z
    .strictObject({
      connect: duration({ min: 1 })
        .default(5_000)
        .describe('Timeout for the TCP connection and the TLS handshake.'),
      start: duration({ min: 1 })
        .default(180_000)
        .describe(
          'Timeout from the start of a process until its first output: `npx` and `uvx` download programs at their first start. A program that has started before gets three times its earlier time, and at least `discovery`.',
        ),
      discovery: duration({ min: 1 })
        .default(10_000)
        .describe(
          'Limit for discovery (handshake and lists together), each handshake for a caller, and the acknowledgement of a notification. For a process, it counts from the first output.',
        ),
      idle: duration({ min: 1 }).default(300_000).describe('Longest silence between two chunks of a reply.'),
    })
    .prefault({})
    .describe('Timeouts of the connection. Calls have the policy `attemptTimeout`.'),
  grace: duration()
    .default(60_000)
    .describe('How long the last-known tools stay listed after the server went down.'),
  refresh: duration({ min: 1_000 })
    .default(300_000)
    .describe(
      'Interval for fetching the lists of the server again; with health probes, at the next probe after this time.',
    ),
  health: z
    .union([serverHealth, z.literal(false)])
    .prefault({})
    .describe(
      'Health probes of the server. `false`: the gateway only fetches its lists, and the server has no incidents.',
    ),
  maxReply: size()
    .default(16 * 1024 ** 2)
    .describe('Largest single message from the server.'),
  maxList: size()
    .default(16 * 1024 ** 2)
    .describe(
      'Most bytes read and kept of each of its lists (tools, prompts, resources, templates), all pages together; of a longer list, or a list of more than 10,000 entries, only the first part is offered.',
    ),
  deliver: z
    .enum(['protocol_error', 'tool_result'])
    .default('protocol_error')
    .describe(
      'Form of gateway errors for its tool calls: JSON-RPC errors, or results that a model can read.',
    ),
}

/** Words for the kind of a server, including clients' words. */
const kinds = z.enum(['stdio', 'auto', 'http', 'streamable-http', 'streamableHttp', 'sse'])

/** Keys that the schema accepts but the gateway does not read. */
const silentKeys = {
  transport: kinds.optional().describe('Another name for `type`.'),
  transportType: kinds.optional().describe('Another name for `type`, as Cline writes it.'),
  ...clientKeyShape,
}

/** Clients' keys for settings with another name here. */
type Renamed = 'enabled' | 'includeTools' | 'excludeTools' | 'disabledTools' | keyof typeof silentKeys

/** The settings of every server, as the schema outputs them. */
type Settings = z.output<z.ZodObject<typeof serverSettings>>

function inOurWords<Given extends Settings>(
  given: Given,
  context: z.core.$RefinementCtx,
): Omit<Given, Renamed> {
  const { enabled, includeTools, excludeTools, disabledTools, ...rest } = given
  if (enabled !== undefined && enabled === given.disabled) {
    const message = 'contradicts "disabled"; keep one'
    if (enabled) context.addIssue({ code: 'custom', message, path: ['enabled'] })
  }
  const include = includeTools ?? given.tools.include
  const exclude = [...given.tools.exclude, ...(excludeTools ?? []), ...(disabledTools ?? [])]
  const { timeouts, timeout = 0 } = given
  const settings = {
    ...rest,
    disabled: given.disabled || enabled === false,
    tools: { include, exclude },
    // A call may be silent for its whole `timeout`.
    timeouts: { ...timeouts, idle: Math.max(timeouts.idle, timeout) },
  }
  const kept = Object.entries(settings).filter(([key]) => !Object.hasOwn(silentKeys, key))
  return Object.fromEntries(kept) as Omit<Given, Renamed>
}

const serverUrl = httpUrl().register(secrets, { secrecy: 'url' })

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
  .describe('TLS settings for https:// URLs.')

/** Keys with the address of a server. */
const urlKeys = ['url', 'urls', 'httpUrl', 'serverUrl'] as const

/** A server over HTTP: Streamable HTTP, or the older HTTP+SSE. */
export const httpServer = z
  .strictObject({
    type: z
      .enum(['auto', 'http', 'streamable-http', 'streamableHttp', 'sse'])
      .default('auto')
      .describe('`http` is Streamable HTTP, `sse` the older HTTP+SSE, and `auto` detects the transport.'),
    url: serverUrl.optional().describe('The URL of the server.'),
    httpUrl: serverUrl.optional().describe('Another name for `url`, as Gemini CLI writes it.'),
    serverUrl: serverUrl.optional().describe('Another name for `url`, as Windsurf writes it.'),
    urls: z.array(serverUrl).min(1).max(64).optional().describe('URLs of its replicas, instead of `url`.'),
    headers: headers.default({}).describe('Headers sent with every request.'),
    era: z
      .enum(['auto', 'legacy', 'modern'])
      .default('auto')
      .describe(
        'Versions of the protocol to speak: up to 2025-11-25 (`legacy`), 2026-07-28 (`modern`), or the version of each client, if the server speaks it (`auto`).',
      ),
    forwardHeaders: forwardHeaders
      .prefault([])
      .describe(
        "Request headers of the agent to pass on: a list, or a map from the agent's name to the server's. " +
          'Cookies only in a map; `Authorization` of the agent never, but a map may turn another header into it. ' +
          'A session is bound to the values in its `initialize`: a later request with other values, or without, gets a 404.',
      ),
    sessionRecovery: z
      .enum(['transparent', 'surface'])
      .default('transparent')
      .describe('Reaction when the server forgot a session: a new session, or a 404 to the agent.'),
    connections: z
      .number()
      .int()
      .min(1)
      .max(4_096)
      .default(4_096)
      .describe(
        'Sockets for calls, per replica; notifications and cancellations have up to 16 of their own. A call that waits for its agent or hangs keeps its socket but no bulkhead slot, so with few sockets such calls block all others. `policies.bulkhead` limits the load.',
      ),
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
    description: 'A server reached over HTTP.',
    oneOf: urlKeys.map((key) => ({ required: [key] })),
  })
  .transform((given, context) => {
    const { type, url, urls, httpUrl, serverUrl, ...rest } = given
    const [first, second] = urlKeys.filter((key) => given[key] !== undefined)
    if (second !== undefined) {
      context.addIssue({ code: 'custom', message: `says the same as "${first}"; keep one`, path: [second] })
    }
    if (first === undefined) {
      context.addIssue({ code: 'custom', message: 'missing; expected the URL of the server', path: ['url'] })
    }
    const only = url ?? httpUrl ?? serverUrl
    if (type === 'sse' && given.era === 'modern') {
      context.addIssue({ code: 'custom', message: 'HTTP+SSE is of the legacy era', path: ['era'] })
    }
    return {
      type: type === 'sse' ? ('sse' as const) : ('http' as const),
      /** True if the gateway must detect the transport. */
      detect: type === 'auto',
      urls: urls ?? (only === undefined ? [] : [only]),
      ...inOurWords(rest, context),
    }
  })

export type HttpServerConfig = z.output<typeof httpServer>

const variableName = z.string().regex(/^[^=\0]+$/, 'expected the name of an environment variable')

/** Text accepted by a process. */
const text = z.string().refine((value) => !value.includes('\0'), 'expected text without NUL')

/** A server that the gateway runs as a child process. */
export const stdioServer = z
  .strictObject({
    type: z.literal('stdio').default('stdio').describe('Optional, because `command` implies it.'),
    command: text.min(1).describe('Program to start.'),
    args: z.array(text).default([]).register(secrets, { secrecy: 'args' }).describe('Its arguments.'),
    env: z
      .record(variableName, text)
      .default({})
      .register(secrets, { secrecy: 'text' })
      .describe('Added to a minimal environment (PATH, HOME, …).'),
    envFile: text
      .min(1)
      .optional()
      .describe(
        'File with more variables, in lines of KEY=value; `env` wins. Relative to the folder of the config.',
      ),
    cwd: text
      .min(1)
      .optional()
      .describe("Working folder, relative to the folder of the config. Default: the gateway's own."),
    sharing: z
      .enum(['shared', 'per_session'])
      .default('shared')
      .describe('One process for all sessions, or one per session. Roots need one per session.'),
    era: z
      .enum(['auto', 'legacy', 'modern'])
      .default('auto')
      .describe(
        'Versions of the protocol to speak: up to 2025-11-25 (`legacy`), 2026-07-28 (`modern`), or detected (`auto`; the newer era if the program speaks both).',
      ),
    processes: z
      .strictObject({
        max: z.number().int().min(1).max(10_000).default(100).describe('Most processes, over all sessions.'),
        perClient: z
          .number()
          .int()
          .min(1)
          .max(10_000)
          .optional()
          .describe('Most processes for one client (one address). Default: half of `max`.'),
      })
      .prefault({})
      .describe('Limits of the processes of `sharing: per_session`; further sessions are refused.'),
    ...serverSettings,
    ...silentKeys,
  })
  .meta({ title: 'stdio server', description: 'A server that the gateway runs as a child process.' })
  .transform((given, context) => {
    const { envFile, ...rest } = given
    if (envFile !== undefined) {
      const message = 'is read for servers of a config file only; write the variables into "env"'
      context.addIssue({ code: 'custom', message, path: ['envFile'] })
    }
    return inOurWords(rest, context)
  })

export type StdioServerConfig = z.output<typeof stdioServer>

/**
 * Sets the `type` of an entry as clients do: from `type` or another name for it, else from the keys `command` and
 * `url`.
 */
function withType(written: unknown, context: z.core.$RefinementCtx): unknown {
  if (!isPlainMap(written)) return written
  const given = withTimeoutUnit(written)
  if (typeof given.timeout === 'number' && given.timeout > 0) {
    const message = `may be seconds or milliseconds: write "${given.timeout}s" or "${given.timeout}ms"`
    context.addIssue({ code: 'custom', message, path: ['timeout'] })
  }
  const [name = 'type', other] = ['type', 'transport', 'transportType'].filter(
    (key) => given[key] !== undefined,
  )
  const type = given[name]
  if (type !== undefined && !kinds.options.some((option) => option === type)) {
    context.addIssue({ code: 'invalid_value', values: kinds.options, path: [name], input: type })
  }
  if (other !== undefined) {
    context.addIssue({ code: 'custom', message: `says the same as "${name}"; keep one`, path: [other] })
  }
  const url = urlKeys.find((key) => key in given)
  if ('command' in given && url !== undefined) {
    context.addIssue({ code: 'custom', message: `a server has "command" or "${url}", not both`, path: [url] })
  }
  if (type !== undefined) return { ...given, type }
  if ('command' in given) return { ...given, type: 'stdio' }
  if (url !== undefined) return { ...given, type: 'auto' }
  // If a key looks like a misspelt `command` or `url`, the schema of that kind reports it.
  const meant = Object.keys(given)
    .map((key) => suggest(key, ['command', ...urlKeys]))
    .find(Boolean)
  if (meant !== undefined) return { ...given, type: meant === 'command' ? 'stdio' : 'auto' }
  const message =
    'settings' in given || given.source === 'extension'
      ? 'is an extension that only Zed can start; write the "command" that it runs'
      : 'expected a "command" to run or a "url" to reach'
  context.addIssue({ code: 'custom', message })
  return given
}

/** An entry of `mcpServers`. */
export const server = z.preprocess(withType, z.discriminatedUnion('type', [stdioServer, httpServer])).meta({
  id: 'server',
  description: 'A program to run (`command`) or an endpoint to reach (`url` or `urls`).',
})

export type ServerConfig = z.output<typeof server> & {
  /** The server's name in the config; undefined when the gateway uses the same name. */
  readonly writtenName?: string
}
