import { z } from 'zod'
import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, Injection } from '../fault.ts'
import { otherName } from '../operators/lists.ts'
import { anyOf, toolNames, changingPage, type ListItem, listMethods, nameOf, type Page } from './lists.ts'

/** A remembered page. */
interface Old {
  at: Millis
  result: Page['result']
  entries: Page['entries']
}

/** Returns the page as first seen, or the present page when the old page is older than `age`. */
function oldPage(injection: Injection, call: Call, { result, entries }: Page, age: Millis): Old {
  const { cursor } = paramsOf(call.message.value)
  const now = injection.clock.now()
  // A server may list other things in each era.
  const key = JSON.stringify(['page', call.server, call.method, cursor, call.caller.era])
  const old = injection.memory<Old>(key, () => ({
    at: now,
    result,
    entries,
  }))
  if (now - old.at > age) Object.assign(old, { at: now, result, entries })
  return old
}

const listSchema = z.strictObject({
  age: duration({ min: 1 })
    .default(3_600_000)
    .describe('How old a list gets before the fault remembers the present list.'),
})

/** Replaces a list by the first list that the fault has hit. */
export const staleList: FaultType<z.output<typeof listSchema>> = {
  schema: listSchema,
  family: 'registry',
  about: 'An old list: later changes do not show.',
  use: 'To find out how long an outdated list does harm, as behind a cache that is not invalidated.',
  seen: 'Tools added later are missing, and tools removed later are still listed.',
  containedBy: {
    policies: [],
    how: 'The gateway fetches lists again at intervals and after list_changed, and so replaces the old list.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  example: { name: 'stale-list', rate: 1, ttl: '10m', match: { server: 'search' }, age: '5m' },
  layer: ({ age }, injection) =>
    changingPage(injection, (page, call) => {
      const old = oldPage(injection, call, page, age)
      if (JSON.stringify(old.entries) === JSON.stringify(page.entries))
        return 'the list has not changed since'
      return { result: old.result, note: { ageMs: injection.clock.now() - old.at } }
    }),
}

const schemaSchema = z.strictObject({
  tools: toolNames().default(['*']).describe('Globs over the tools; the fault draws a matching tool.'),
  age: duration({ min: 1 })
    .default(3_600_000)
    .describe('How old a schema gets before the fault remembers the present schema.'),
})

/**
 * Lists a tool with an earlier schema. Without a different earlier schema, the fault renames a member of the present
 * schema.
 */
export const staleSchema: FaultType<z.output<typeof schemaSchema>> = {
  schema: schemaSchema,
  family: 'registry',
  about: 'A tool is listed with an old schema.',
  use: 'To see what happens when the agent reads one version of a schema and the server checks another.',
  seen: 'A tool asks for arguments under names the server no longer knows.',
  containedBy: {
    policies: ['arguments'],
    how: "The policy arguments counts or stops calls that do not match the schema; refreshing the list ends the fault's effect.",
  },
  methods: ['tools/list'],
  sides: ['upstream', 'client'],
  example: { name: 'stale-schema', rate: 1, ttl: '10m', match: { server: 'search' }, tools: ['*'] },
  layer({ tools, age }, injection) {
    const isOne = anyOf(tools)
    return changingPage(injection, (page, call) => {
      const old = new Map(oldPage(injection, call, page, age).entries.map((entry) => [nameOf(entry), entry]))
      const aged = page.entries.flatMap((entry, index) => {
        const other = isOne(nameOf(entry))
          ? aging(entry, old.get(nameOf(entry)), injection.draw(`member of ${nameOf(entry)}`))
          : undefined
        return other === undefined ? [] : [{ index, ...other }]
      })
      const chosen = aged[Math.floor(injection.draw('tool') * aged.length)]
      if (chosen === undefined) return 'no tool has a schema with members'
      const { index, entry, how } = chosen
      const entries = page.entries.map((other, at) => (at === index ? entry : other))
      return { result: page.with(entries), note: { tool: nameOf(entry), how } }
    })
  },
}

const kinds = ['inputSchema', 'outputSchema'] as const

/**
 * Returns the entry with an older schema, and a note of the difference. Uses the schemas in `old` when they differ; or
 * else renames the member that `draw`, in [0, 1), picks. Undefined when there is no member.
 */
function aging(
  entry: ListItem,
  old: ListItem | undefined,
  draw: number,
): { entry: ListItem; how: string } | undefined {
  const changed = kinds.filter(
    (kind) => old !== undefined && JSON.stringify(old[kind]) !== JSON.stringify(entry[kind]),
  )
  if (changed.length > 0 && old !== undefined) {
    const { inputSchema: _, outputSchema: __, ...rest } = entry
    const schemas: Record<string, unknown> = {}
    for (const kind of kinds) if (old[kind] !== undefined) schemas[kind] = old[kind]
    return { entry: { ...rest, ...schemas }, how: `${changed.join()} of an earlier list` }
  }
  const found = kinds.flatMap((kind) => membersOf(entry[kind]).map((name) => ({ kind, name })))
  const member = found[Math.floor(draw * found.length)]
  if (member === undefined) return undefined
  const { kind, name } = member
  const former = otherName(name)
  return {
    entry: { ...entry, [kind]: renamed(entry[kind], name, former) },
    how: `${kind}: ${name} was ${former}`,
  }
}

/** Returns the members a schema requires, or else all its members. */
function membersOf(schema: unknown): string[] {
  if (!isObject(schema) || !isObject(schema.properties)) return []
  const names = Object.keys(schema.properties)
  const demanded = new Set<unknown>(Array.isArray(schema.required) ? schema.required : [])
  const required = names.filter((name) => demanded.has(name))
  return required.length > 0 ? required : names
}

/** Returns the schema with a renamed member. */
function renamed(schema: unknown, name: string, to: string): unknown {
  const { properties, required, ...rest } = schema as Record<string, unknown>
  const members = Object.entries(properties as object).map(([key, value]: [string, unknown]) => [
    key === name ? to : key,
    value,
  ])
  const names = Array.isArray(required)
    ? (required as unknown[]).map((key) => (key === name ? to : key))
    : undefined
  return {
    ...rest,
    properties: Object.fromEntries(members) as unknown,
    ...(names === undefined ? {} : { required: names }),
  }
}
