import type { Fault } from '../chaos/plan/common.ts'
import { faultSchema } from '../chaos/plan/schema.ts'
import type { Step } from './agents.ts'
import type { Json, ServerModel, ToolModel } from './servers.ts'

/** Tools that the agents of `demo`, `sweep` and most studies call: tools that look things up, and change nothing. */
const TOOLS = ['get_metrics', 'get_logs', 'get_traces', 'describe_service', 'check_dependency']
const SERVER = 'demo'

/** How long a call of such a tool takes, in milliseconds. */
export const CALL_MS = 20

const SERVICES = 97

/** A tool that tells a number of a service: what it answers, it answers always. */
export function lookup(tool: string): ToolModel {
  // The same answer is the same object each time.
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

/** Most items that a tool with a list answers. */
const MOST_ITEMS = 12

/** A tool that tells a number of a service with the list that it is made of, how long that is, and when it was measured. */
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

/** Some time before simulations begin, in milliseconds since 1970. */
const MEASURED_AT = Date.UTC(2025, 11, 31)

/** Some number for a text (FNV-1a, 32 bits). */
function numberOf(text: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  return (hash >>> 0) % 10_000
}

export interface Scene {
  readonly servers: Readonly<Record<string, ServerModel>>
  readonly stepsOf: (task: number) => readonly Step[]
}

/** Tasks of `fanOut` calls, which go round the tools. `tools`: as `server/tool`; `model`: what each of them does. */
export function sceneOf(
  fanOut: number,
  tools: readonly string[] = TOOLS.map((tool) => `${SERVER}/${tool}`),
  model: (tool: string) => ToolModel = lookup,
): Scene {
  const targets = tools.map((key) => {
    const at = key.indexOf('/')
    return { server: key.slice(0, at), tool: key.slice(at + 1) }
  })
  // Names are anybody's: `constructor` is one as well.
  const byServer = new Map<string, [string, ToolModel][]>()
  for (const { server, tool } of targets)
    byServer.set(server, [...(byServer.get(server) ?? []), [tool, model(tool)]])
  const servers = Object.fromEntries(
    [...byServer].map(([server, models]) => [server, { tools: Object.fromEntries(models) }]),
  )
  // The same call is the same object each time: there may be millions of them.
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

/** Errors that hit each attempt on its own, with a probability of `rate`. */
export const independentErrors = (rate: number): Fault =>
  planned({ name: 'independent-errors', type: 'rpc.error', rate })

const schema = faultSchema()

/** Most calls that a fault of a simulation holds at a time. */
const MOST_HELD = 10_000

/** A fault as a plan has it, which stays armed for as long as the simulation takes. */
export const planned = (written: object): Fault => ({
  ...schema.parse({ maxConcurrent: MOST_HELD, ttl: 1, ...written }),
  ttl: Infinity,
})

/** The tools that the faults of a plan aim at by their names, and some beside them; the usual ones where it names none. */
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

/** A name that a glob means alone; undefined when it may mean several. */
const nameIn = (glob: string | undefined): string | undefined =>
  glob === undefined || /[*?]/.test(glob) ? undefined : glob
