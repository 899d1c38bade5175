import { isObject } from '../../protocol/jsonrpc.ts'
import { type OperatorName, operatorOf } from './index.ts'
import type { Detectability, Draw, Material, OperatorConfig, Told } from './operator.ts'
import { below, EVERY, segmentsOf } from './pointer.ts'
import { edited, type Site } from './site.ts'

/** A changed copy of a value, and the changed place; or a note that there was nothing to change. */
type Applied = { readonly value: unknown; readonly path: string } | 'not_applicable'

/** Operators on these materials see a single whole value, without places inside. */
const whole: ReadonlySet<Material> = new Set(['blocks', 'json_text'])

/**
 * Applies an operator to a value, and returns the changed copy. Without a `path` in the settings, draws the place. The
 * operator fits the drawn place, and makes sense there by `schema`, the JSON Schema of the value.
 */
export function apply(config: OperatorConfig, value: unknown, draw: Draw, schema?: unknown): Applied {
  const path = pathFor(config, value, draw, schema)
  if (path === undefined) return 'not_applicable'
  const { fits, edit } = operatorOf(config.op)
  const done = edited(value, segmentsOf(path), (site) =>
    fits(site, config) ? edit(site, config) : undefined,
  )
  return done === undefined ? 'not_applicable' : { value: done.value, path }
}

/** Returns the place for an operator, by its settings or drawn; undefined when it fits nowhere. */
export function pathFor(
  config: OperatorConfig,
  value: unknown,
  draw: Draw,
  schema?: unknown,
): string | undefined {
  if (config.path !== undefined) return config.path
  return pick(fitting(config, placesIn(value, schema)), draw('path'))?.path
}

/** Returns the value of a material; undefined when there is nothing of this material. */
export type Materials = (on: Material) => unknown

/**
 * Draws one of the named operators and its path, for the purposes `operator` and `path`. Returns the operator's
 * settings; undefined when no operator fits. All fitting operators are equally likely. `detectable` excludes operators
 * of the other kind.
 */
export function choose(
  names: readonly OperatorName[],
  materials: Materials,
  draw: Draw,
  { schema, detectable }: { schema?: unknown; detectable?: Detectability | undefined } = {},
): OperatorConfig | undefined {
  const places = new Map<Material, readonly Place[]>()
  const fits = names.flatMap((name) => {
    const { on, schema: settings, detectable: is } = operatorOf(name)
    if (detectable !== undefined && is !== detectable) return []
    if (!places.has(on)) places.set(on, placesOf(materials(on), schema))
    const config = settings.parse({ op: name })
    const found = fitting(config, places.get(on) ?? [])
    return found.length > 0 ? [{ config, found }] : []
  })
  const chosen = pick(fits, draw('operator'))
  const path = chosen && pick(chosen.found, draw('path'))?.path
  return chosen && path !== undefined ? { ...chosen.config, path } : undefined
}

const placesOf = (material: unknown, schema: unknown): readonly Place[] =>
  material === undefined ? [] : placesIn(material, schema)

function fitting(config: OperatorConfig, places: readonly Place[]): readonly Place[] {
  const { on, fits, suits } = operatorOf(config.op)
  return (whole.has(on) ? places.slice(0, 1) : places).filter(
    ({ site, told }) => fits(site, config) && (suits === undefined || suits(told, site)),
  )
}

function pick<Item>(items: readonly Item[], u: number): Item | undefined {
  return items[Math.floor(u * items.length)]
}

/** A possible place of a change. In a list, the place means all elements, and `site` is the first element. */
interface Place {
  readonly path: string
  readonly site: Site
  readonly told: Told
}

const MOST_PLACES = 1_000
const DEEPEST = 32

/**
 * Returns the places in a value in text order, with their schema's facts. Returns at most 1,000 places, at most 32
 * levels deep.
 */
function placesIn(value: unknown, schema?: unknown): readonly Place[] {
  const places: Place[] = []
  const root = schemaNode(schema)
  walk({ value, key: undefined, holder: undefined }, '', root, toldOf(undefined, undefined, root), 0, places)
  return places
}

function walk(
  site: Site,
  path: string,
  schema: SchemaNode | undefined,
  told: Told,
  depth: number,
  places: Place[],
): void {
  if (places.length === MOST_PLACES) return
  places.push({ path, site, told })
  if (depth === DEEPEST) return
  const { value } = site
  if (Array.isArray(value) && value.length > 0) {
    const items = itemsOf(schema)
    const element: Site = { value: value[0], key: undefined, holder: undefined }
    walk(element, below(path, EVERY), items, toldOf(undefined, undefined, items), depth + 1, places)
  } else if (isObject(value)) {
    for (const [key, member] of Object.entries(value)) {
      const node = memberOf(schema, key)
      const child: Site = { value: member, key, holder: value }
      walk(child, below(path, key), node, toldOf(schema, key, node), depth + 1, places)
    }
  }
}

/** A place in a JSON Schema, and the root schema for its references. */
interface SchemaNode {
  readonly node: unknown
  readonly root: unknown
}

const MOST_REFERENCES = 8

/** Returns the root of a schema, with its reference resolved; undefined without a usable schema. */
function schemaNode(root: unknown): SchemaNode | undefined {
  return follow({ node: root, root })
}

/** Returns the schema of a member; undefined when `schema` says nothing of the member. */
function memberOf(schema: SchemaNode | undefined, key: string): SchemaNode | undefined {
  const { properties } = objectAt(schema)
  return isObject(properties) && Object.hasOwn(properties, key)
    ? follow({ node: properties[key], root: schema?.root })
    : undefined
}

/** Returns the schema of the elements of an array; undefined when `schema` says nothing of the elements. */
function itemsOf(schema: SchemaNode | undefined): SchemaNode | undefined {
  const { items } = objectAt(schema)
  return items === undefined ? undefined : follow({ node: items, root: schema?.root })
}

/** Returns the facts about the member `key`. `holder`: schema of its object; `schema`: schema of the member. */
function toldOf(
  holder: SchemaNode | undefined,
  key: string | undefined,
  schema: SchemaNode | undefined,
): Told {
  const { required } = objectAt(holder)
  const known = holder !== undefined && key !== undefined
  const { enum: listed, const: only } = objectAt(schema)
  return {
    required: known ? Array.isArray(required) && required.includes(key) : undefined,
    listed: schema === undefined ? undefined : Array.isArray(listed) || only !== undefined,
  }
}

const objectAt = (schema: SchemaNode | undefined): Readonly<Record<string, unknown>> =>
  isObject(schema?.node) ? schema.node : {}

/** Follows references within the same schema. */
function follow({ node, root }: SchemaNode): SchemaNode | undefined {
  for (let hops = 0; isObject(node); hops++) {
    if (typeof node.$ref !== 'string') return { node, root }
    if (!node.$ref.startsWith('#') || hops === MOST_REFERENCES) return undefined
    node = locate(root, node.$ref.slice(1))
  }
  return undefined
}

function locate(root: unknown, path: string): unknown {
  return segmentsOf(path).reduce<unknown>(
    (at, key) => (isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined),
    root,
  )
}
