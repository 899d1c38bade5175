import { badTtl, dropCursor, dupName, invalidCursor, slowList } from './registry/lists.ts'
import { staleList, staleSchema } from './registry/stale.ts'
import { listChangedStorm } from './registry/storm.ts'
import { ghostTool, moved, toolMissing } from './registry/tools.ts'

/** What a server's lists can be besides right. */
export const registryFaults = {
  'registry.tool_missing': toolMissing,
  'registry.ghost_tool': ghostTool,
  'registry.stale_list': staleList,
  'registry.stale_schema': staleSchema,
  'registry.moved': moved,
  'registry.slow_list': slowList,
  'registry.drop_cursor': dropCursor,
  'registry.invalid_cursor': invalidCursor,
  'registry.dup_name': dupName,
  'registry.bad_ttl': badTtl,
  'registry.list_changed_storm': listChangedStorm,
} as const
