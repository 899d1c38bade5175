import { writtenServers } from '../files/server-files.ts'
import type { ConfigPath } from '../files/places.ts'
import { clientKeys, withTimeoutUnit } from '../schema/client-keys.ts'
import { isPlainMap } from '../schema/server-names.ts'
import type { ConfigFinding } from './issues.ts'

const MOST_NAMED = 5

/**
 * Returns findings about parts of a config that are only for clients. Each finding names a key and says what the
 * gateway does with it.
 */
export function clientFindings(config: unknown, settings: readonly string[]): ConfigFinding[] {
  return [...settingsFound(settings), ...questions(config), ...keysFound(config), ...timeouts(config)]
}

function settingsFound(settings: readonly string[]): ConfigFinding[] {
  const [first, ...more] = settings
  if (first === undefined) return []
  const named = more.slice(0, MOST_NAMED - 1).join(', ')
  const rest = more.length < MOST_NAMED ? '' : ` and ${more.length - MOST_NAMED + 1} more`
  const others = more.length === 0 ? '' : `; so are ${named}${rest}`
  return [{ path: [first], at: 'key', message: `is a setting of a client, and ignored${others}` }]
}

/** Returns findings about prompts for a person, and about client settings that choose servers. */
function questions(config: unknown): ConfigFinding[] {
  if (!isPlainMap(config)) return []
  const inputs: ConfigPath[] = [['inputs'], ['mcp', 'inputs']]
  const { mcp } = config
  const found = inputs.filter(([key = '', inner]) =>
    inner === undefined ? key in config : isPlainMap(mcp) && inner in mcp,
  )
  const asked = found.map((path): ConfigFinding => {
    const message = 'asks a person, which a gateway cannot do: ignored; use environment variables'
    return { path, at: 'key', message }
  })
  const chosen = ['allowed', 'excluded', 'serverCommand', 'discovery'].filter(
    (key) => isPlainMap(mcp) && key in mcp,
  )
  return [
    ...asked,
    ...chosen.map((key): ConfigFinding => {
      const message = 'is for a client; a gateway ignores it, and runs all servers except those "disabled"'
      return { path: ['mcp', key], at: 'key', message }
    }),
  ]
}

function keysFound(config: unknown): ConfigFinding[] {
  const servers = writtenServers(config)
  return Object.entries(clientKeys).flatMap(([key, about]): ConfigFinding[] => {
    const [first, ...more] = servers.filter(({ entry }) => key in entry)
    if (first === undefined) return []
    const others = more.length === 0 ? '' : ` (here and in ${more.length} more)`
    return [{ path: [...first.path, key], at: 'key', message: about + others }]
  })
}

/** Returns findings about timeouts without a unit: clients disagree, so the finding names the assumed unit. */
function timeouts(config: unknown): ConfigFinding[] {
  const servers = writtenServers(config)
  const entries = servers.map(({ entry }) => entry)
  const taken = servers.flatMap(({ path, entry }) => {
    const { timeout } = withTimeoutUnit(entry, entries)
    return typeof entry.timeout === 'number' && typeof timeout === 'string' ? [{ path, timeout }] : []
  })
  return ['s', 'ms'].flatMap((unit): ConfigFinding[] => {
    const [first, ...more] = taken.filter(({ timeout }) => /\d([a-z]+)$/.exec(timeout)?.[1] === unit)
    if (first === undefined) return []
    const others = more.length === 0 ? '' : ` (and likewise in ${more.length} more)`
    const message = `is read as ${first.timeout}; write the value with its unit, to be sure${others}`
    return [{ path: [...first.path, 'timeout'], at: 'value', message }]
  })
}
