import type { Fault } from '../chaos/plan/common.ts'
import { faultSchema } from '../chaos/plan/schema.ts'
import type { Step } from './agents.ts'
import type { Json, ServerModel, ToolModel } from './servers.ts'

/** Tools that the agents of `demo`, `sweep` and most studies call. All of them only read. */
const TOOLS = ['get_metrics', 'get_logs', 'get_traces', 'describe_service', 'check_dependency']
const SERVER = 'demo'

/** Duration of a call of these tools, in milliseconds. */
export const CALL_MS = 20

const SERVICES = 97

/** Returns a tool that answers with a service's number, which never changes. */
export function lookup(tool: string): ToolModel {
  // Caches each answer, so equal calls get the same object.
  const answers = new Map<unknown, Json>()
  return {
    tookMs: () => CALL_MS,
    answer({ service }) {
      let answer = answers.get(service)
      if (answer === undefined) {
        answer = { service, value: numberOf(`${tool}/${String(service)}`), unit: 'ms' }
        if (answers.size < SERVICES) answers.set(service, answer)
      }
      return answer
    },
    inputSchema: {
      type: 'object',
      properties: { service: { type: 'string' } },
      required: ['service'],
    },
    outputSchema: {
      type: 'object',
      properties: { service: { type: 'string' }, value: { type: 'number' }, unit: { type: 'string' } },
      required: ['service', 'value', 'unit'],
    },
  }
}

/** Maximum number of items in the answer of a `listing` tool. */
const MOST_ITEMS = 12

/**
 * Returns a tool that answers with a service's number, a list of items, the length of the list, and the time of the
 * measurement.
 */
export function listing(tool: string): ToolModel {
  const { answer, outputSchema, ...plain } = lookup(tool)
  const { properties, required } = outputSchema as { properties: object; required: readonly string[] }
  const lists = { items: { type: 'array' }, total: { type: 'number' }, measuredAt: { type: 'string' } }
  return {
    ...plain,
    answer(args) {
      const number = numberOf(`${tool}/items of ${String(args.service)}`)
      const total = 2 + (number % (MOST_ITEMS - 1))
      const items = Array.from({ length: total }, (_, at) => ({
        id: at + 1,
        value: (number * (at + 1)) % 997,
      }))
      const measuredAt = new Date(MEASURED_AT + number * 1_000).toISOString()
      return { ...answer(args), items, total, measuredAt }
    },
    outputSchema: {
      ...outputSchema,
      properties: { ...properties, ...lists },
      required: [...required, ...Object.keys(lists)],
    },
  }
}

/** A time before all simulations, in milliseconds since 1970. */
const MEASURED_AT = Date.UTC(2025, 11, 31)

/** Hashes a text to a number (FNV-1a, 32 bits). */
function numberOf(text: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  return (hash >>> 0) % 10_000
}

export interface Scene {
  readonly servers: Readonly<Record<string, ServerModel>>
  readonly stepsOf: (task: number) => readonly Step[]
}

/**
 * Returns servers, and tasks of `fanOut` calls that use the tools in turn. `tools` has names as `server/tool`; `model`
 * makes each tool.
 */
export function sceneOf(
  fanOut: number,
  tools: readonly string[] = TOOLS.map((tool) => `${SERVER}/${tool}`),
  model: (tool: string) => ToolModel = lookup,
): Scene {
  const targets = tools.map((key) => {
    const at = key.indexOf('/')
    return { server: key.slice(0, at), tool: key.slice(at + 1) }
  })
  // A map, because a server may be called `constructor`.
  const byServer = new Map<string, [string, ToolModel][]>()
  for (const { server, tool } of targets)
    byServer.set(server, [...(byServer.get(server) ?? []), [tool, model(tool)]])
  const servers = Object.fromEntries(
    [...byServer].map(([server, models]) => [server, { tools: Object.fromEntries(models) }]),
  )
  // Equal calls share an object: there may be millions of calls.
  const steps: readonly (readonly Step[])[] = targets.map((target) =>
    Array.from({ length: SERVICES }, (_, at) => ({ ...target, args: { service: `service-${at}` } })),
  )
  return {
    servers,
    stepsOf(task) {
      const asked: Step[] = []
      for (let step = 0; step < fanOut; step++)
        asked.push(steps[step % steps.length]![(task * fanOut + step) % SERVICES]!)
      return asked
    },
  }
}

/** Returns errors hitting each attempt independently, with a probability of `rate`. */
export const independentErrors = (rate: number): Fault =>
  planned({ name: 'independent-errors', type: 'rpc.error', rate })

const schema = faultSchema()

/** Maximum number of calls held by a simulated fault at a time. */
const MOST_HELD = 10_000

/** Returns a fault as in a plan, armed for the whole simulation. */
export const planned = (written: object): Fault => ({
  ...schema.parse({ maxConcurrent: MOST_HELD, ttl: 1, ...written }),
  ttl: Infinity,
})

/** Returns the tools that a plan's faults name, and some other tools; the default tools when the plan names none. */
export function toolsAimedAt(faults: readonly Fault[]): readonly string[] {
  const aimed = faults.map(({ match = {} }) => ({ server: nameIn(match.server), tool: nameIn(match.tool) }))
  const servers = new Set(aimed.flatMap(({ server }) => server ?? []))
  if (servers.size === 0) servers.add(SERVER)
  return [...servers].flatMap((name) => {
    const own = aimed.flatMap(({ server = name, tool }) =>
      server === name && tool !== undefined ? [tool] : [],
    )
    return [...new Set([...own, ...TOOLS])]
      .slice(0, Math.max(TOOLS.length, own.length))
      .map((tool) => `${name}/${tool}`)
  })
}

/** Returns the only name matched by a glob; undefined when several names may match. */
const nameIn = (glob: string | undefined): string | undefined =>
  glob === undefined || /[*?]/.test(glob) ? undefined : glob
