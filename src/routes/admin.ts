import { withoutSecrets } from '../chaos/plan/schema.ts'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../chaos/control/controller.ts'
import type { ReloadReport } from '../config/boot-keys.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import { redact } from '../config/secrets/redact.ts'
import type { Sessions } from '../downstream/legacy/sessions.ts'
import { heldOf, type Ordered, setsWith, statesOf } from '../control/orders.ts'
import type { Clock } from '../mesh/clock.ts'
import { DEFAULT_SET, type Place } from '../mesh/settings.ts'
import type { Live } from '../mesh/live.ts'
import type { Observable, StateKey, StateStore, ToolDefinition } from '../mesh/policy.ts'
import { operators, states as policyStates } from '../policies/descriptions.ts'
import type { Schemas } from '../policies/state/schemas.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { addedServer, type DynamicServers } from '../registry/dynamic-servers.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../protocol/lists.ts'
import type { Server } from '../registry/server.ts'
import type { Intents } from '../telemetry/intents.ts'
import { LONGEST_INTENT } from '../protocol/task.ts'
import { printable } from '../telemetry/printable.ts'
import { malformed, read } from './answers.ts'

export interface AdminParts {
  readonly live: Live<GatewayGeneration>
  readonly sessions: Sessions
  readonly clock: Clock
  readonly reload: () => Promise<ReloadReport>
}

/** Longest shown text from a client's description of itself, in characters. */
const LONGEST_CLIENT_WORD = 200

/** Returns the texts that identify a client. Leaves out other keys, which may be many and hold anything. */
function clientShown(clientInfo: unknown): Record<string, string> | undefined {
  if (!isObject(clientInfo)) return undefined
  const words: Record<string, string> = {}
  for (const key of ['name', 'title', 'version']) {
    const word = clientInfo[key]
    if (typeof word === 'string') words[key] = word.slice(0, LONGEST_CLIENT_WORD)
  }
  return words
}

const nothing = z.strictObject({})

export function registerAdmin(app: FastifyInstance, { live, sessions, clock, reload }: AdminParts): void {
  app.get('/admin/config', () => ({
    hash: live.current.hash,
    config: withoutSecrets(redact(live.current.config)),
  }))

  app.post('/admin/reload', async ({ body }, reply) => {
    const wanted = read(nothing, body ?? {}, 'the body')
    if (!wanted.ok) return malformed(reply, wanted)
    const report = await reload()
    return reply.code(report.ok ? 200 : 422).send(report)
  })

  app.get('/admin/sessions', () => ({
    open: sessions.size,
    max: live.current.config.gateway.sessions.max,
    // Shows only the newest 1,000 sessions.
    sessions: [...sessions.values()].slice(-1_000).map((session) => ({
      // Shows only the beginning of the id, because anyone with the full id can act as the session's agent.
      id: `${session.id.slice(0, 8)}…`,
      endpoint: session.endpoint.server === undefined ? '/mcp' : `/mcp/${session.endpoint.server}`,
      version: session.version,
      client: clientShown(session.initializeParams.clientInfo),
      inFlight: session.inFlight.size,
      listening: session.listening,
      idleMs: Math.round(session.idleMs),
    })),
    at: new Date(clock.wall()).toISOString(),
  }))
}

export interface AdminMeshParts {
  readonly live: Live<GatewayGeneration>
  readonly state: StateStore
  readonly clock: Clock
}

interface OfSet {
  readonly Querystring: { readonly set?: string }
}

interface OneState extends OfSet {
  readonly Params: { readonly server: string; readonly tool: string }
}

/** The tool name in paths for all requests except calls of a listed tool; the same as in metrics. */
const OTHER = '_other'

/** Kinds of policy state that show a remaining budget. */
const budgets = policyStates.filter(({ isBudget }) => isBudget === true)

/** Returns the values that policies have learned about a server, by the kind of state. */
function learnedOf(store: StateStore, server: string, set: string): Record<string, object> {
  const learned: Record<string, object> = {}
  for (const one of policyStates) {
    if (one.learned === undefined) continue
    for (const [key, state] of store.list(one.kind))
      if (key.server === server && key.set === set) learned[one.kind] = one.learned(state)
  }
  return learned
}

export function registerAdminMesh(app: FastifyInstance, { live, state, clock }: AdminMeshParts): void {
  const unknownSet = (set: string) => ({
    error: `unknown policy set "${set.slice(0, 64)}"`,
    sets: [DEFAULT_SET, ...Object.keys(live.current.config.policies.sets)],
  })

  app.get<OfSet>('/admin/mesh', (request, reply) => {
    const { set = DEFAULT_SET } = request.query
    const { servers, mesh } = live.current
    if (!mesh.hasSet(set)) return reply.code(404).send(unknownSet(set))
    return [...servers.values()].map((server) => ({
      server: server.name,
      other: mesh.chainFor(server.name, 'tools/list', undefined, set),
      tools: Object.fromEntries(
        server.entries('tools').map(({ key }) => [key, mesh.chainFor(server.name, 'tools/call', key, set)]),
      ),
      learned: learnedOf(state, server.name, set),
    }))
  })

  for (const operator of operators) registerOperator(app, operator, { live, state, clock })

  app.get('/admin/budgets', () =>
    Object.fromEntries(budgets.map(({ kind }) => [kind, state.list<Observable>(kind).flatMap(rowsOf)])),
  )
}

/** Registers the routes that show the states of a policy, and let an operator change states by hand. */
function registerOperator(app: FastifyInstance, ordered: Ordered, parts: AdminMeshParts): void {
  const [, operator] = ordered
  const { state, clock } = parts
  const { path, kind, noun, actions } = operator
  const order = z.strictObject({ action: z.enum(actions).describe('Action to perform.') })
  /** Other kinds of states on this route, which an operator can see but not change. */
  const alsoShown = policyStates.flatMap((one) => (one.shownAt === path ? one.kind : []))
  const others = () => [...new Set(alsoShown)].flatMap((one) => state.list<Observable>(one).flatMap(rowsOf))
  const rows = (): readonly Row[] => [...statesOf(ordered, parts).flatMap(rowsOf), ...heldOf(ordered, parts)]

  /** Returns an error message: the reason why this state cannot be changed by hand. */
  function missing(server: string, tool: string, set: string | undefined): string {
    const named = `${server.slice(0, 64)}/${tool.slice(0, 128)}`
    if (others().some((row) => row.server === server && row.tool === tool))
      return `${named} is not a ${noun} and cannot be opened or closed by hand`
    const sets = setsWith(ordered, { server, tool: tool === OTHER ? undefined : tool }, parts)
    if (sets.length === 0) return `no ${noun} is configured for ${named}`
    if (set === undefined || sets.includes(set))
      return `no ${noun} of ${named} yet: it begins with the first call`
    const wanted = String(set).slice(0, 128)
    return `no ${noun} of ${named} in the policy set "${wanted}"; sets that have one: ${sets.join(', ')}`
  }

  app.get(`/admin/${path}`, () => [...rows(), ...others()])

  app.post<OneState>(`/admin/${path}/:server/:tool`, (request, reply) => {
    const { server, tool } = request.params
    const { set } = request.query
    const wanted = read(order, request.body ?? {}, 'the body')
    if (!wanted.ok) return malformed(reply, wanted)
    const isMeant = (of: Place) =>
      of.server === server && (of.tool ?? OTHER) === tool && (set === undefined || of.set === set)
    if (!rows().some(isMeant)) return reply.code(404).send({ error: missing(server, tool, set) })
    const states = state.list<Observable>(kind).flatMap(([key, one]) => (isMeant(key) ? [one] : []))
    const target = { set, server, tool: tool === OTHER ? undefined : tool }
    operator.act(wanted.value.action, target, states, { state, clock })
    return reply.send(rows().filter(isMeant))
  })
}

/** A state with its place, or an order in force for a place that has no state yet. */
type Row = Place & object

/** Returns a state for an operator: one row, or several rows when the state has several settings. */
function rowsOf([{ set, server, tool, overrides, replica }, state]: readonly [StateKey, Observable]) {
  const matched = overrides?.map((match) => JSON.parse(match) as unknown) ?? []
  const of = matched.length === 0 ? {} : { overrides: matched }
  return [state.snapshot()].flat().map((row) => ({ set, server, tool, ...of, replica, ...row }))
}

/** Most unlisted names shown to an operator, and the longest shown part of a name, in characters. */
const MAX_UNLISTED = 100
const LONGEST_UNLISTED = 160

export interface AdminServersParts {
  readonly live: Live<GatewayGeneration>
  readonly state: StateStore
  readonly dynamic: DynamicServers
  /** Ends a server's processes and upstream sessions, and starts the server again. */
  readonly restart: (server: string) => void
}

interface ByName {
  readonly Params: { readonly server: string }
}

/** Registers the routes that show and change the servers in the registry. */
export function registerAdminServers(
  app: FastifyInstance,
  { live, state, dynamic, restart }: AdminServersParts,
): void {
  const find = (name: string) => live.current.servers.get(name)
  const unknown = (name: string) => ({
    error: `unknown server "${name.slice(0, 64)}"`,
    servers: [...live.current.servers.keys()],
  })

  app.get('/admin/servers', () =>
    [...live.current.servers.values()].map((server) => summary(server, dynamic)),
  )

  app.get<ByName>('/admin/servers/:server', (request, reply) => {
    const server = find(request.params.server)
    if (server === undefined) return reply.code(404).send(unknown(request.params.server))
    return reply.send(detail(server, dynamic, state.list<Schemas>('schemas')[0]?.[1]))
  })

  app.post<{ Body: { readonly server?: unknown } | null }>('/admin/servers', async ({ body }, reply) => {
    const wanted = read(addedServer, body ?? {}, 'the server')
    if (!wanted.ok) return malformed(reply, wanted)
    const { status, ...answer } = await dynamic.add(wanted.value.name, body?.server)
    return reply.code(status).send(answer)
  })

  app.delete<ByName>('/admin/servers/:server', async (request, reply) => {
    const { status, ...answer } = await dynamic.remove(request.params.server)
    return reply.code(status).send(answer)
  })

  app.post<ByName>('/admin/servers/:server/restart', (request, reply) => {
    const wanted = read(nothing, request.body ?? {}, 'the body')
    if (!wanted.ok) return malformed(reply, wanted)
    const { server } = request.params
    if (find(server) === undefined) return reply.code(404).send(unknown(server))
    restart(server)
    return reply.code(202).send({ server, restarting: true })
  })
}

function summary(server: Server, dynamic: DynamicServers) {
  const { name, config, state, since, error, catalog, initializeResult, eras, starting } = server
  return {
    name,
    /** The name in the config; undefined if equal. */
    writtenName: config.writtenName,
    type: config.type,
    from: dynamic.has(name) ? 'api' : 'config',
    protected: server.protected,
    state,
    since: new Date(since).toISOString(),
    /** Time for which the server's process has been starting; also set after a restart. */
    ...(starting === undefined ? {} : { startingForMs: Math.round(starting.forMs) }),
    ...(error === undefined ? {} : { error: error.message, reason: error.reason }),
    failureReason: server.failureReason,
    health: healthShown(server),
    replicas: config.type === 'stdio' ? 1 : config.urls.length,
    era: eras.map(told),
    transport: server.transports.map((known) => transportTold(config, known)),
    sessions: server.upstreamSessions.size,
    tools: server.entries('tools').length,
    serverInfo: initializeResult?.value.serverInfo,
    protocolVersion: initializeResult?.value.protocolVersion,
    /** The reason when a list is incomplete. */
    cut: catalog.cut,
    fetchedAt: catalog.fetchedAt === undefined ? undefined : new Date(catalog.fetchedAt).toISOString(),
  }
}

/** Returns the results of a server's probes; `false` when the server has no probes. */
function healthShown({ config, health }: Server) {
  if (config.health === false) return false
  const { state, failure, failures, lastProbeAt, paces } = health
  const pace = paces.map(({ step, latestMs, baselineMs }) => [step, { latestMs, baselineMs }] as const)
  return {
    state,
    message: failure?.message,
    failures,
    lastProbeAt: lastProbeAt === undefined ? undefined : new Date(lastProbeAt).toISOString(),
    pace: Object.fromEntries(pace),
  }
}

/** Returns the transport of a replica, from the config or as detected; empty while unknown. */
function transportTold({ type, ...config }: ServerConfig, known: Server['transports'][number]) {
  if (known !== undefined) return { ...known, at: new Date(known.at).toISOString() }
  if ('detect' in config && config.detect && config.era !== 'modern') return {}
  return { transport: type === 'http' ? 'streamable-http' : type, decidedBy: 'config' }
}

/** Returns what is known about each era of one replica, by era. */
function told(eras: Server['eras'][number]) {
  const told = Object.entries(eras).map(([era, known]) => [
    era,
    { ...known, at: new Date(known.at).toISOString() },
  ])
  return Object.fromEntries(told) as Readonly<Record<string, unknown>>
}

function detail(server: Server, dynamic: DynamicServers, schemas: Schemas | undefined) {
  const entries = (kind: ListKind) =>
    server.entries(kind).map(({ key, fingerprint }) => ({ key, fingerprint }))
  return {
    ...summary(server, dynamic),
    capabilities: server.initializeResult?.value.capabilities,
    tools: entries('tools').map((tool) => ({
      ...tool,
      exposed: server.exposedName(tool.key),
      ...uncheckedOf(server.facts(tool.key), schemas),
    })),
    excluded: server.excluded,
    prompts: entries('prompts'),
    resources: entries('resources'),
    resourceTemplates: entries('resourceTemplates'),
    unlisted: server.unlisted.slice(0, MAX_UNLISTED).map(({ kind, name, why, where }) => ({
      list: kind,
      name: printable(name, LONGEST_UNLISTED),
      why,
      where,
    })),
    unlistedCount: server.unlisted.length,
  }
}

/**
 * Returns the schemas of a tool that the gateway cannot use for checks, each with the reason. Known after the first
 * call with something to check.
 */
function uncheckedOf(facts: ToolDefinition | undefined, schemas: Schemas | undefined) {
  const inputSchema = schemas?.refusal(facts?.inputSchema, 'arguments')
  const outputSchema = schemas?.refusal(facts?.outputSchema, 'reply')
  if (inputSchema === undefined && outputSchema === undefined) return {}
  return { unchecked: { inputSchema, outputSchema } }
}

export interface AdminOutcomesParts {
  readonly clock: Pick<Clock, 'after'>
  readonly chaos: Pick<Controller, 'engine'>
  readonly intents: Pick<Intents, 'report'>
}

const MAX_REPORTS = 1_000

/** Reports handled in one turn of the event loop, because each report may search a journal. */
const REPORTS_PER_TURN = 5

const ofCall = z
  .strictObject({
    call: z
      .union([z.string().min(1).max(1_024), z.number()])
      .describe('Id of the call, as the agent sent it; of equal ids the latest call counts.'),
    task: z
      .string()
      .min(1)
      .max(LONGEST_INTENT)
      .optional()
      .describe('Name of the task of the call, because agents use the same ids.'),
    outcome: z.enum(['safe', 'silent', 'unknown']).describe('How the agent used the reply.'),
  })
  .meta({ title: 'how an agent used a reply' })

const ofIntent = z
  .strictObject({
    intent: z.string().min(1).max(LONGEST_INTENT).describe('Name of the task, as its calls carry it.'),
    outcome: z
      .enum(['succeeded', 'degraded', 'failed'])
      .describe('How the task ended; `degraded`: with less than asked for, and the agent said so.'),
    source: z
      .enum(['meta', 'baggage', 'conversation', 'trace', 'header', 'session'])
      .optional()
      .describe('Where calls carry the name, if several tasks share it.'),
    tenant: z.string().max(64).optional().describe('Tenant of the calls, if several tasks share the name.'),
    arm: z
      .string()
      .max(128)
      .optional()
      .describe('Experiment arm of the calls, as `experiment/arm`, if several tasks share the name.'),
  })
  .meta({ title: 'how a task ended' })

const report = z.union([ofCall, ofIntent])
const reports = z.array(report).max(MAX_REPORTS)

/**
 * Registers the route for reports of facts that a gateway cannot see: how agents used replies, and how their tasks
 * ended. Accepts one report or a list, and answers each report with its linked faults or calls. Refuses a whole list if
 * any of its reports cannot be read.
 */
export function registerAdminOutcomes(
  app: FastifyInstance,
  { clock, chaos, intents }: AdminOutcomesParts,
): void {
  const take = (said: z.output<typeof report>) =>
    'call' in said
      ? { ...said, faults: chaos.engine.accounting.report(said.call, said.outcome, { intent: said.task }) }
      : { intent: said.intent, outcome: said.outcome, ...intents.report(said) }

  app.post('/admin/outcomes', async ({ body }, reply) => {
    if (!Array.isArray(body)) {
      const one = read(report, body ?? {}, 'the body')
      return one.ok ? take(one.value) : malformed(reply, one)
    }
    const all = read(reports, body, 'the body')
    if (!all.ok) return malformed(reply, all)
    const answers = []
    for (const said of all.value) {
      answers.push(take(said))
      if (answers.length % REPORTS_PER_TURN === 0)
        await new Promise<void>((resolve) => clock.after(0, resolve))
    }
    return answers
  })
}
