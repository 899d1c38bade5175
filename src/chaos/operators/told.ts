import { isObject } from '../../protocol/jsonrpc.ts'
import type { Told } from './operator.ts'
import { segmentsOf } from './pointer.ts'

/** A place in a JSON Schema, and the schema that its references point into. */
export interface SchemaNode {
  readonly node: unknown
  readonly root: unknown
}

const MOST_REFERENCES = 8

/** The schema itself, as far as it tells anything. */
export function schemaNode(root: unknown): SchemaNode | undefined {
  return follow({ node: root, root })
}

/** What it says of a member. */
export function memberOf(schema: SchemaNode | undefined, key: string): SchemaNode | undefined {
  const { properties } = objectAt(schema)
  return isObject(properties) && Object.hasOwn(properties, key)
    ? follow({ node: properties[key], root: schema?.root })
    : undefined
}

/** What it says of the elements of an array. */
export function itemsOf(schema: SchemaNode | undefined): SchemaNode | undefined {
  const { items } = objectAt(schema)
  return items === undefined ? undefined : follow({ node: items, root: schema?.root })
}

/** What is told of the member `key` of what `holder` describes, which is itself described by `schema`. */
export function toldOf(
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
