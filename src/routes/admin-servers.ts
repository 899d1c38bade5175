import type { FastifyInstance } from 'fastify'
import type { DynamicServers } from '../registry/dynamic-servers.ts'
import type { Live } from '../mesh/live.ts'
import type { StateStore, ToolFacts } from '../mesh/policy.ts'
import type { Schemas } from '../policies/state/schemas.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { ListKind } from '../registry/kinds.ts'
import type { Server } from '../registry/server.ts'
import { printable } from '../telemetry/printable.ts'

/** How many of the names that agents are not shown an operator is, and how much of each, in characters. */
const MAX_UNLISTED = 100
const LONGEST_UNLISTED = 160

export interface AdminServersParts {
  readonly live: Live<GatewayGeneration>
  /** What policies remember. */
  readonly state: StateStore
  readonly dynamic: DynamicServers
  /** Ends a server's processes and conversations, and begins anew. */
  readonly restart: (server: string) => void
}

interface ByName {
  readonly Params: { readonly server: string }
}

/** The registry, as an operator sees and changes it. */
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

  app.post<{ Body: unknown }>('/admin/servers', async (request, reply) => {
    const { status, ...answer } = await dynamic.add(request.body)
    return reply.code(status).send(answer)
  })

  app.delete<ByName>('/admin/servers/:server', async (request, reply) => {
    const { status, ...answer } = await dynamic.remove(request.params.server)
    return reply.code(status).send(answer)
  })

  app.post<ByName>('/admin/servers/:server/restart', (request, reply) => {
    const { server } = request.params
    if (find(server) === undefined) return reply.code(404).send(unknown(server))
    restart(server)
    return reply.code(202).send({ server, restarting: true })
  })
}

function summary(server: Server, dynamic: DynamicServers) {
  const { name, config, state, since, error, catalog, greeting, eras } = server
  return {
    name,
    type: config.type,
    from: dynamic.has(name) ? 'api' : 'config',
    state,
    since: new Date(since).toISOString(),
    ...(error === undefined ? {} : { error: error.message, reason: error.reason }),
    replicas: config.type === 'stdio' ? 1 : config.urls.length,
    era: eras.map(told),
    sessions: server.links.size,
    tools: server.entries('tools').length,
    serverInfo: greeting?.value.serverInfo,
    protocolVersion: greeting?.value.protocolVersion,
    /** Why a list is not all that it offers. */
    cut: catalog.cut,
    fetchedAt: catalog.fetchedAt === undefined ? undefined : new Date(catalog.fetchedAt).toISOString(),
  }
}

/** The verdict of each era, at one replica. */
function told(eras: Server['eras'][number]) {
  const verdicts = Object.entries(eras).map(([era, verdict]) => [
    era,
    { ...verdict, at: new Date(verdict.at).toISOString() },
  ])
  return Object.fromEntries(verdicts) as Readonly<Record<string, unknown>>
}

function detail(server: Server, dynamic: DynamicServers, schemas: Schemas | undefined) {
  const entries = (kind: ListKind) =>
    server.entries(kind).map(({ key, fingerprint }) => ({ key, fingerprint }))
  return {
    ...summary(server, dynamic),
    capabilities: server.greeting?.value.capabilities,
    tools: entries('tools').map((tool) => ({ ...tool, ...uncheckedOf(server.facts(tool.key), schemas) })),
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

/** Which schemas of a tool nothing is checked with, and why; known once there was a call that could be checked. */
function uncheckedOf(facts: ToolFacts | undefined, schemas: Schemas | undefined) {
  const inputSchema = schemas?.refusal(facts?.inputSchema, 'arguments')
  const outputSchema = schemas?.refusal(facts?.outputSchema, 'reply')
  if (inputSchema === undefined && outputSchema === undefined) return {}
  return { unchecked: { inputSchema, outputSchema } }
}
