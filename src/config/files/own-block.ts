import { isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap } from 'yaml'
import { clientSettings } from './client-settings.ts'
import type { SourceDocument } from './document.ts'

/** Keys beside a block in a file of its own that say nothing to a gateway. */
const ignored = new Set(['$schema', 'inputs'])

const ofServers = ['mcpServers', 'servers', 'context_servers']

/** The names that a block goes by. */
const namesOf = (block: string) => (ofServers.includes(block) ? ofServers : [block])

export interface OwnBlock {
  readonly node: Node | null
  /** Keys of the file that are not part of the block. */
  readonly unknownKeys: readonly { readonly name: string; readonly node: Node }[]
}

/** Finds a block in its own file, which holds it as it is or under its name: an editor's file will do. */
export function ownBlock(block: string, { root }: SourceDocument): OwnBlock {
  if (!isMap(root)) return { node: root, unknownKeys: [] }
  const names = namesOf(block)
  const own =
    root.items.find(({ key, value }) => names.includes(nameOf(key)) && (isMap(value) || isSeq(value))) ??
    (ofServers.includes(block) ? serversOfEditor(root) : undefined)
  if (own === undefined) return { node: root, unknownKeys: [] }
  const keys = root.items.map(({ key }) => nameOf(key))
  const clients = ofServers.includes(block) ? clientSettings(keys, names) : []
  const unknownKeys = root.items
    .filter(({ key }) => key !== own.key && !ignored.has(nameOf(key)) && !clients.includes(nameOf(key)))
    .map(({ key }) => ({ name: nameOf(key), node: key as Node }))
  return { node: own.value as Node, unknownKeys }
}

/** The servers within the settings of VS Code: `{ "mcp": { "servers": … } }`. */
function serversOfEditor(root: YAMLMap): Pair | undefined {
  const mcp = root.items.find(({ key }) => nameOf(key) === 'mcp')?.value
  return isMap(mcp)
    ? mcp.items.find(({ key, value }) => nameOf(key) === 'servers' && isMap(value))
    : undefined
}

const nameOf = (key: unknown): string => (isScalar(key) ? String(key.value) : '')
