import { suggest } from '../../units/suggest.ts'
import { isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap } from 'yaml'
import type { SourceDocument } from './document.ts'

/**
 * Keys found only in the settings file of a client. In a file with one of these keys, all unknown keys count as
 * settings of the client.
 */
const marks: ReadonlySet<string> = new Set([
  // Zed
  'context_servers',
  // VS Code, Gemini CLI
  'mcp',
  // Gemini CLI
  'selectedAuthType',
  'security',
  // Claude Code
  'numStartups',
  'projects',
  'oauthAccount',
])

/** Further keys of clients. One of these keys does not make the unknown keys of the file settings of a client. */
const known: ReadonlySet<string> = new Set([
  // Claude Desktop
  'globalShortcut',
  'preferences',
  'scale',
  'locale',
  // Gemini CLI
  'theme',
  'general',
  'ui',
  'ide',
  'model',
  'context',
  'advanced',
  'experimental',
  'hooks',
  'autoAccept',
  'checkpointing',
  'contextFileName',
  'preferredEditor',
  'sandbox',
  'usageStatisticsEnabled',
])

/** Blocks that no client uses: a file with one of these blocks is a config of Breakwater. */
export const ours: ReadonlySet<string> = new Set(['gateway', 'policies', 'chaos', 'experiments'])

/**
 * Returns the keys of a file that are client settings, not mistakes. `own`: the keys a config may have. A key that
 * resembles a key of `own` counts as mistyped.
 */
export function clientSettings(keys: readonly string[], own: readonly string[]): string[] {
  const isClients = keys.some((key) => marks.has(key)) && !keys.some((key) => ours.has(key))
  return keys.filter((key) => {
    // Clients also have a setting `telemetry`, so in their files it is not Breakwater's block.
    if (isClients && key === 'telemetry') return true
    if (own.includes(key)) return false
    return known.has(key) || (isClients && suggest(key, own) === undefined)
  })
}

/** Keys that a block's own file may have beside the block; the gateway ignores them. */
const ignored = new Set(['$schema', 'inputs'])

const ofServers = ['mcpServers', 'servers', 'context_servers']

const namesOf = (block: string) => (ofServers.includes(block) ? ofServers : [block])

export interface OwnBlock {
  readonly node: Node | null
  readonly unknownKeys: readonly { readonly name: string; readonly node: Node }[]
}

/**
 * Finds a block in its own file: the whole file, or the value under the block's name. A file with servers may also be
 * an editor's file.
 */
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

/** Returns the servers in the settings of VS Code: `{ "mcp": { "servers": … } }`. */
function serversOfEditor(root: YAMLMap): Pair | undefined {
  const mcp = root.items.find(({ key }) => nameOf(key) === 'mcp')?.value
  return isMap(mcp)
    ? mcp.items.find(({ key, value }) => nameOf(key) === 'servers' && isMap(value))
    : undefined
}

const nameOf = (key: unknown): string => (isScalar(key) ? String(key.value) : '')
