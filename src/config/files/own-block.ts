import { isMap, isScalar, type Node } from 'yaml'
import type { SourceDocument } from './document.ts'

/** Keys beside a block in a file of its own that say nothing to a gateway. */
const ignored = new Set(['$schema', 'inputs'])

/** The names that a block goes by. */
const namesOf = (block: string) =>
  ['mcpServers', 'servers'].includes(block) ? ['mcpServers', 'servers'] : [block]

export interface OwnBlock {
  readonly node: Node | null
  /** Keys of the file that are not part of the block. */
  readonly strangers: readonly { readonly name: string; readonly node: Node }[]
}

/** Finds a block in its own file, which holds it as it is or under its name: an editor's file will do. */
export function ownBlock(block: string, { root }: SourceDocument): OwnBlock {
  if (!isMap(root)) return { node: root, strangers: [] }
  const names = namesOf(block)
  const own = root.items.find(({ key, value }) => names.includes(nameOf(key)) && isMap(value))
  if (own === undefined) return { node: root, strangers: [] }
  const strangers = root.items
    .filter(({ key }) => key !== own.key && !ignored.has(nameOf(key)))
    .map(({ key }) => ({ name: nameOf(key), node: key as Node }))
  return { node: own.value as Node, strangers }
}

const nameOf = (key: unknown): string => (isScalar(key) ? String(key.value) : '')
