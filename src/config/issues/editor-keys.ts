import type { Finding } from './finding.ts'
import { isPlainMap } from '../schema/plain-map.ts'
import { ignoredKeys } from '../schema/server-settings.ts'

/** Keys of `value`, as it was written, that only an editor has a use for. */
export function editorKeysIn(value: unknown): Finding[] {
  if (!isPlainMap(value)) return []
  const found: Finding[] = []
  const note = (...path: string[]) =>
    found.push({ path, at: 'key', message: 'is for editors; a gateway ignores it' })
  if ('inputs' in value) note('inputs')
  for (const block of ['mcpServers', 'servers']) {
    const servers = value[block]
    for (const [name, server] of Object.entries(isPlainMap(servers) ? servers : {})) {
      if (!isPlainMap(server)) continue
      for (const key of ignoredKeys) if (key in server) note(block, name, key)
    }
  }
  return found
}
