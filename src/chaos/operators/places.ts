import { isObject } from '../../protocol/jsonrpc.ts'
import type { Told } from './operator.ts'
import { below, EVERY } from './pointer.ts'
import type { Site } from './site.ts'
import { itemsOf, memberOf, schemaNode, toldOf, type SchemaNode } from './told.ts'

/** A place where something may be changed; in lists it stands for all elements, and the site is the first one's. */
export interface Place {
  readonly path: string
  readonly site: Site
  readonly told: Told
}

const MOST_PLACES = 1_000
const DEEPEST = 32

/** The places in a value, in the order of its text, with what its schema says of them. At most 1,000, 32 deep. */
export function placesIn(value: unknown, schema?: unknown): readonly Place[] {
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
