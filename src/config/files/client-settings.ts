import { suggest } from '../../units/suggest.ts'

/** Keys of a file that only the settings of a client have, which hold much besides servers: all others are the client's too. */
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

/** Keys of clients whose files hold little else. */
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

/** Blocks that no client has: a file with one of them is ours. */
export const ours: ReadonlySet<string> = new Set(['gateway', 'policies', 'chaos', 'experiments'])

/**
 * Which keys of a file are settings of a client, and not a mistake. `own`: the keys that a config may have. One that looks
 * like such a key is one that was mistyped.
 */
export function clientSettings(keys: readonly string[], own: readonly string[]): string[] {
  const isClients = keys.some((key) => marks.has(key)) && !keys.some((key) => ours.has(key))
  return keys.filter((key) => {
    // Clients have settings of that name, which say whom they report to.
    if (isClients && key === 'telemetry') return true
    if (own.includes(key)) return false
    return known.has(key) || (isClients && suggest(key, own) === undefined)
  })
}
