import { isObject } from '../../../protocol/jsonrpc.ts'
import { otherName } from '../../operators/members.ts'
import type { Entry } from './pages.ts'

const kinds = ['inputSchema', 'outputSchema'] as const

/**
 * The entry with an older schema, and what is older in it: the one in `old` when that is another one, or else one where
 * the member that `draw`, in [0, 1), picks had another name. Undefined when there is no member.
 */
export function aging(
  entry: Entry,
  old: Entry | undefined,
  draw: number,
): { entry: Entry; how: string } | undefined {
  const changed = kinds.filter(
    (kind) => old !== undefined && JSON.stringify(old[kind]) !== JSON.stringify(entry[kind]),
  )
  if (changed.length > 0 && old !== undefined) {
    const { inputSchema: _, outputSchema: __, ...rest } = entry
    const schemas: Record<string, unknown> = {}
    for (const kind of kinds) if (old[kind] !== undefined) schemas[kind] = old[kind]
    return { entry: { ...rest, ...schemas }, how: `${changed.join()} as it was` }
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

/** The members that a schema requires, or else all that it knows. */
function membersOf(schema: unknown): string[] {
  if (!isObject(schema) || !isObject(schema.properties)) return []
  const names = Object.keys(schema.properties)
  const demanded = new Set<unknown>(Array.isArray(schema.required) ? schema.required : [])
  const required = names.filter((name) => demanded.has(name))
  return required.length > 0 ? required : names
}

/** The schema with one member under another name. */
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
