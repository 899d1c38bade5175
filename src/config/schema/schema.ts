import { z } from 'zod'
import { mayBeForTests } from '../../chaos/control/guard.ts'
import { headerGlob } from '../../chaos/plan/common.ts'
import { chaos } from '../../chaos/plan/schema.ts'
import { experiments } from '../../experiments/schema.ts'
import { policies } from '../../policies/index.ts'
import { rate } from '../../policies/rate-limit/limit.ts'
import { telemetry } from '../../telemetry/schema.ts'
import { globPattern } from '../../units/glob-schema.ts'
import { duration } from '../../units/duration.ts'
import { size } from '../../units/size.ts'
import { secrets } from '../secrets/secrets.ts'
import { address } from '../../units/address.ts'
import { withTimeoutUnit } from './client-keys.ts'
import { controlMcp } from './control-mcp-schema.ts'
import { health } from './health-schema.ts'
import { isPlainMap, serverNamePattern, slugOf } from './server-names.ts'
import { server, type ServerConfig } from './server-schema.ts'

export type { ServerConfig } from './server-schema.ts'

// A fault may match the value of a header, which may be a secret key.
secrets.add(headerGlob, { secrecy: 'text' })

const count = (max: number) => z.number().int().min(1).max(max)

const hostName = z
  .string()
  .regex(/^(\[[0-9a-fA-F:.]+\]|[^\s/:]+)(:\d{1,5})?$/, 'expected a host name, without http://')

const origin = z
  .string()
  .regex(
    /^[a-z][a-z0-9+.-]*:\/\/[^\s/]+$/i,
    'expected an origin such as https://app.example.com, without a path',
  )

const sessions = z
  .strictObject({
    max: count(1_000_000).default(10_000).describe('Sessions open at once.'),
    unused: duration({ min: 1_000 })
      .default(5 * 60_000)
      .describe('A session without any request since its `initialize` is closed after this time.'),
    idle: duration({ min: 1_000 })
      .default(30 * 60_000)
      .describe('A session unused for this time is closed.'),
    maxInFlight: count(10_000).default(256).describe('Calls under way at once in one session.'),
  })
  .prefault({})
  .describe('Sessions of agents that speak a protocol with sessions.')

const requestRate = z.strictObject({
  rate: rate().describe('Sustained rate: 100/s, 60/m, 1000/h, or a number of requests per second.'),
  burst: count(1_000_000)
    .optional()
    .describe(
      'Burst: requests allowed at once after a pause. Default: the requests of one second, at least 1.',
    ),
})

const limits = z
  .strictObject({
    memory: size(64 * 1024 ** 3)
      .default(640 * 1024 ** 2)
      .describe(
        'Limit of bytes buffered in the gateway. Unfinished replies get 40 %, those of a single server half as much. Descriptions that clients give of themselves get 20 %. Request bodies, unread replies, events for resuming clients, and questions with their answers get 10 % each. A session gets a quarter of the unread replies.',
      ),
    perClient: z
      .number()
      .positive()
      .max(1)
      .default(0.5)
      .describe(
        'The share of one client in all limits by client: calls, connections, sessions, subscriptions, request bodies, and the like. Clients differ by address (IPv6: its first 64 bits). Set 1 behind a proxy that hides addresses.',
      ),
    stalled: duration({ min: 3_000 })
      .default(30_000)
      .describe(
        'The gateway closes a connection that reads nothing of a waiting reply for this time. A request body may pause for a third of this time, and may take twice this time in all.',
      ),
    perSession: z
      .union([requestRate, z.literal(false)])
      .prefault({ rate: '1000/s', burst: 2_000 })
      .describe(
        'Limit for each session; clients without sessions, and `initialize`, count only for `perTenant`. Requests above the limit get the JSON-RPC error `rate_limited`. `false`: no limit.',
      ),
    perTenant: z
      .union([requestRate, z.literal(false)])
      .prefault({ rate: '5000/s', burst: 10_000 })
      .describe(
        'Limit for each tenant (the header x-breakwater-tenant, or else the name of the client); all new names together count as one tenant. `false`: no limit.',
      ),
    rejectionPause: duration({ min: 0, max: 10_000 })
      .default(1_000)
      .describe(
        'Longest delay of a rejection. A client that retries before the announced time, more than ten times and more than ten times a second, gets its next rejections with growing delays, but never after the announced time. Other answers are never delayed. 0: no delay.',
      ),
    connections: count(1_000_000)
      .default(20_000)
      .describe('Open connections of agents; the gateway closes further connections immediately.'),
  })
  .prefault({})
  .describe(
    'Limits for the rate and number of requests from agents, for all clients together and by client. Requests above a limit are refused before any other work.',
  )

const environmentName = z.string().regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')

const gateway = z
  .strictObject({
    listen: address.default('127.0.0.1:8080').describe('Data plane: /mcp, /mcp/{server}, /livez, /readyz.'),
    control: address.default('127.0.0.1:8081').describe('Control plane: /metrics and /admin.'),
    controlToken: z
      .string()
      .regex(/^[\x21-\x7e]{16,}$/, 'expected at least 16 characters, ASCII and without spaces')
      .register(secrets, { secrecy: 'text' })
      .optional()
      .describe(
        'Bearer token of the control plane; required when `control` is not a loopback address. Default: a new token at each start, in a file for commands of the same user; reading on loopback then needs no token.',
      ),
    dynamicCommands: z
      .boolean()
      .default(false)
      .describe('Whether the admin API may add servers that are programs to run (`command`).'),
    environment: environmentName
      .optional()
      .describe(
        'Environment of this gateway; unset counts as `production`. Faults may be armed in dev, development, test, staging, sandbox, qa, local and the names in `chaosEnvironments`; the environment variables NODE_ENV and ENVIRONMENT, if set, must be one of these too. Fixed at boot: a reload cannot change it.',
      ),
    chaosEnvironments: z
      .array(environmentName.refine(mayBeForTests, 'faults are never armed in an environment of that name'))
      .max(32)
      .default([])
      .describe('Further environments in which faults may be armed, such as `staging-eu`. Fixed at boot.'),
    stateDir: z
      .string()
      .min(1)
      .optional()
      .describe(
        'Folder for state that outlives the process: servers added through the admin API (`servers.json`), outcomes of calls with an idempotency key (`records`, a LevelDB with unencrypted answers of servers, in a folder only for its owner), incidents (`incidents.json`), whether faults were killed (`chaos-kill.json`), and key and heads of their journal (`chaos-journal.key`, `chaos-journal-*.head`). For one gateway at a time: a second one does not start.',
      ),
    separator: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,8}$/, 'expected 1 to 8 of A-Z a-z 0-9 _ -')
      .default('__')
      .describe('Separator of server and tool in the names on /mcp; forbidden inside server names.'),
    http: z
      .enum(['own', 'node'])
      .default('node')
      .describe(
        'Engine of HTTP/1.1: `own` reads the usual POST of agents and talks to servers itself, and leaves all else to Node; `node` leaves all to Node and undici. Fixed at boot.',
      ),
    allowedHosts: z
      .array(hostName)
      .max(64)
      .default([])
      .describe('Host names that clients may ask for besides loopback names and the listen address.'),
    allowedOrigins: z
      .array(origin)
      .max(64)
      .default([])
      .describe('Origins of browser pages that may call, besides loopback origins.'),
    maxBody: size()
      .default(4 * 1024 ** 2)
      .describe('Largest request body.'),
    maxInFlight: count(100_000).default(2_000).describe('Calls under way at once, over all sessions.'),
    listTimeout: duration({ min: 1 })
      .default(2_000)
      .describe('Longest total wait of a list on /mcp for servers that are still being discovered.'),
    drain: duration({ max: 600_000 }).default(10_000).describe('How long SIGTERM waits for calls in flight.'),
    ready: z
      .enum(['always', 'any', 'all'])
      .default('any')
      .describe('Servers that must be up for /readyz: none, one, or all.'),
    sessions,
    limits,
    controlMcp: controlMcp.optional(),
  })
  .prefault({})
  .describe('The gateway itself.')

type Policies = typeof policies
type Setting<Name extends keyof Policies> = z.ZodUnion<[Policies[Name]['schema'], z.ZodLiteral<false>]>
type Settings = { [Name in keyof Policies]: z.ZodOptional<Setting<Name>> }

/** For each policy, the schema of its key: the policy's settings, or `false`. */
const choices = Object.entries(policies).map(([name, policy]) => {
  const { schema } = policy
  const setting = z.union([schema, z.literal(false)])
  return { name, policy, setting: setting.describe(schema.description ?? '').meta({ id: `Policy_${name}` }) }
})

/**
 * Returns a schema key for every registered policy. With `inForce`, policies have their defaults if the key is absent.
 */
function settings(inForce: boolean): Settings {
  const shape = choices.map(({ name, policy, setting }) => {
    const byDefault = inForce && !('optIn' in policy)
    return [name, byDefault ? setting.prefault({}) : setting.optional()]
  })
  return Object.fromEntries(shape) as Settings
}

const setName = z
  .string()
  .regex(
    /^(?!default$)[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$/,
    'expected 1 to 64 of A-Z a-z 0-9 _ -, and not "default"',
  )

const effect = z
  .enum(['read_only', 'idempotent', 'write'])
  .describe('Effect of running these tools again: decides whether calls may be retried, hedged and stored.')

const match = z
  .strictObject({
    server: globPattern.optional().describe('Glob over server names.'),
    tool: globPattern.optional().describe('Glob over tool names, as their server knows them.'),
    method: globPattern.optional().describe('Glob over JSON-RPC methods.'),
  })
  .describe('The override applies to calls that match all of these globs.')

/** The block `policies`. */
const mesh = z
  .strictObject({
    defaults: z.strictObject(settings(true)).prefault({}).describe('Policies for every call.'),
    overrides: z
      .array(z.strictObject({ match, effect: effect.optional(), ...settings(false) }))
      .max(1_000)
      .default([])
      .describe('Policies for some calls. For each policy, the last matching override that sets it wins.'),
    sets: z
      .record(setName, z.strictObject(settings(false)))
      .default({})
      .describe('Named policy sets. The settings of a set win over defaults and overrides.'),
  })
  .prefault({})
  .describe('Resilience policies, by name; `false` switches a policy off.')

/** A server's name: part of URLs, and of its tools' names. */
export const serverName = z
  .string()
  .regex(serverNamePattern, 'expected 1 to 40 of A-Z a-z 0-9 _ - without - in front')

/** A server name as clients allow it; the gateway replaces characters that are invalid in its own names. */
const writtenName = z.string().min(1, 'expected a name').max(256, 'expected a name of at most 256 characters')

const servers = z
  .preprocess(withTimeoutUnits, z.record(writtenName, server))
  .describe('MCP servers by name, as Claude, VS Code, Cursor and others write them.')

/** Adds units to bare timeouts. The keys of the other entries may show which client wrote the file, and so the unit. */
function withTimeoutUnits(given: unknown): unknown {
  if (!isPlainMap(given)) return given
  const entries = Object.values(given)
  return Object.fromEntries(
    Object.entries(given).map(([name, entry]) => [
      name,
      isPlainMap(entry) ? withTimeoutUnit(entry, entries) : entry,
    ]),
  )
}

const ofClient = z.unknown().optional().describe('For clients; a gateway ignores it.')

/** The block `mcp` of VS Code's settings; Gemini CLI has its own `mcp`, without servers. */
const mcp = z
  .strictObject({
    servers: servers.optional().describe('Another name for `mcpServers`.'),
    inputs: z.array(z.unknown()).optional().describe('Values that VS Code asks a person for: ignored.'),
    discovery: ofClient,
    allowed: ofClient,
    excluded: ofClient,
    serverCommand: ofClient,
  })
  .describe('Settings of VS Code or Gemini CLI.')

/** The whole config file: the single source of types, defaults, documentation and the editors' JSON Schema. */
export const config = z
  .strictObject({
    $schema: z.string().optional().describe('For editors.'),
    gateway,
    mcpServers: servers.optional(),
    servers: servers.optional().describe('Another name for `mcpServers`, used by VS Code.'),
    context_servers: servers.optional().describe('Another name for `mcpServers`, used by Zed.'),
    mcp: mcp.optional(),
    inputs: z
      .array(z.unknown())
      .optional()
      .describe('Values that VS Code asks a person for. A gateway cannot ask: ignored.'),
    policies: mesh,
    chaos,
    experiments,
    health,
    telemetry,
  })
  .transform(({ gateway, policies, chaos, experiments, health, telemetry, ...written }, context) => {
    const { mcpServers, servers, context_servers, mcp } = written
    const blocks = Object.entries({ mcpServers, servers, context_servers, 'mcp.servers': mcp?.servers })
    const [[path, entries] = ['mcpServers', {}], second] = blocks.filter(([, held]) => held !== undefined)
    if (second !== undefined) {
      const message = `says the same as "${path}"; keep one`
      context.addIssue({ code: 'custom', message, path: second[0].split('.') })
    }
    const named = withOwnNames(entries ?? {}, gateway.separator, (name, message) =>
      context.addIssue({ code: 'custom', message, path: [...path.split('.'), name] }),
    )
    return { gateway, mcpServers: named, policies, chaos, experiments, health, telemetry }
  })

/**
 * Returns the servers by their valid names. Calls `refuse` for a server without a valid name, or with the name of
 * another server.
 */
function withOwnNames(
  servers: Readonly<Record<string, ServerConfig>>,
  separator: string,
  refuse: (written: string, message: string) => void,
): Record<string, ServerConfig> {
  const named = new Map<string, ServerConfig>()
  for (const [written, entry] of Object.entries(servers)) {
    const name = slugOf(written, separator)
    const twin = name === undefined ? undefined : named.get(name)
    if (name === undefined) refuse(written, 'a server name needs a letter or a digit of A-Z a-z 0-9')
    else if (twin !== undefined)
      refuse(
        written,
        `would be known as "${name}", and so would "${twin.writtenName ?? name}"; rename one of the two`,
      )
    else named.set(name, name === written ? entry : { ...entry, writtenName: written })
  }
  return Object.fromEntries(named)
}

export type Config = z.output<typeof config>
export type GatewayConfig = Config['gateway']
