import type { FastifyInstance } from 'fastify'
import { DEFAULT_SET } from '../mesh/compile.ts'
import type { Live } from '../mesh/live.ts'
import type { StateKey, StateStore } from '../mesh/policy.ts'
import type { Breaker, BreakerOrder } from '../policies/breaker/breaker.ts'
import { forceAll, holdsOf } from '../policies/breaker/holds.ts'
import type { GatewayGeneration } from '../registry/generation.ts'

export interface AdminMeshParts {
  readonly live: Live<GatewayGeneration>
  /** What policies remember. */
  readonly state: StateStore
}

interface OfSet {
  readonly Querystring: { readonly set?: string }
}

interface OneBreaker extends OfSet {
  readonly Params: { readonly server: string; readonly tool: string }
  readonly Body: { readonly action?: unknown } | null
}

/** What the path calls requests that are no calls of a listed tool, as metrics do. */
const OTHER = '_other'

const orders: readonly BreakerOrder[] = ['open', 'close', 'reset']

/** Kinds of state that say how much is still free. */
const budgetKinds = [
  'retry-budget',
  'bulkhead',
  'rate-limit',
  'rate-limit-quota',
  'adaptive-concurrency',
] as const

/** The policies in force, and what they remember. */
export function registerAdminMesh(app: FastifyInstance, { live, state }: AdminMeshParts): void {
  const unknownSet = (set: string) => ({
    error: `unknown policy set "${set.slice(0, 64)}"`,
    sets: [DEFAULT_SET, ...Object.keys(live.current.config.policies.sets)],
  })

  app.get<OfSet>('/admin/mesh', (request, reply) => {
    const { set = DEFAULT_SET } = request.query
    const { servers, mesh, config } = live.current
    if (set !== DEFAULT_SET && !Object.hasOwn(config.policies.sets, set))
      return reply.code(404).send(unknownSet(set))
    return [...servers.values()].map((server) => ({
      server: server.name,
      other: mesh.chainFor(server.name, 'tools/list', undefined, set),
      tools: Object.fromEntries(
        server.entries('tools').map(({ key }) => [key, mesh.chainFor(server.name, 'tools/call', key, set)]),
      ),
    }))
  })

  app.get('/admin/breakers', () => state.list<Breaker>('breaker').map(shown))

  app.post<OneBreaker>('/admin/breakers/:server/:tool', (request, reply) => {
    const { server, tool } = request.params
    const { set = DEFAULT_SET } = request.query
    const action = orders.find((order) => order === request.body?.action)
    if (action === undefined)
      return reply.code(400).send({ error: 'expected {"action": "open|close|reset"}' })
    const breakers = state
      .list<Breaker>('breaker')
      .filter(([key]) => key.server === server && (key.tool ?? OTHER) === tool && key.set === set)
    if (breakers.length === 0) {
      const error = `no breaker of ${server.slice(0, 64)}/${tool.slice(0, 128)} yet: it begins with the first call`
      return reply.code(404).send({ error })
    }
    const one = tool === OTHER ? undefined : tool
    const owned = breakers.map(([, breaker]) => breaker)
    forceAll(holdsOf(state, set, server), one, owned, action)
    return reply.send(breakers.map(shown))
  })

  app.get('/admin/budgets', () =>
    Object.fromEntries(budgetKinds.map((kind) => [kind, state.list<Shown>(kind).map(shown)])),
  )
}

interface Shown {
  snapshot(): object
}

function shown([{ set, server, tool, overrides, replica }, state]: readonly [StateKey, Shown]) {
  const matched = overrides?.map((match) => JSON.parse(match) as unknown) ?? []
  const of = matched.length === 0 ? {} : { overrides: matched }
  return { set, server, tool, ...of, replica, ...state.snapshot() }
}
