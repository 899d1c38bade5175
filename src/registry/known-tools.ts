import type { Effect, ToolFacts } from '../mesh/policy.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { Catalog, Entry } from './catalog.ts'

/** What is known of a tool of the catalog, its server's own word on its effect included. */
export interface KnownTool extends ToolFacts {
  readonly annotated: Effect
}

/** The tools of a catalog by name; what has not changed since `before` is the same object. */
export function knownTools(
  { lists }: Catalog,
  before: ReadonlyMap<string, KnownTool>,
): ReadonlyMap<string, KnownTool> {
  return new Map(
    lists.tools.map((entry) => {
      const known = before.get(entry.key)
      return [entry.key, known?.fingerprint === entry.fingerprint ? known : factsOf(entry)]
    }),
  )
}

function factsOf({ value, fingerprint }: Entry): KnownTool {
  const { inputSchema, outputSchema, annotations } = value
  return { inputSchema, outputSchema, fingerprint, annotated: annotatedEffect(annotations) }
}

/** The protocol's hints; without any of them a tool may do anything. */
function annotatedEffect(annotations: unknown): Effect {
  if (!isObject(annotations)) return 'unknown'
  if (annotations.readOnlyHint === true) return 'read_only'
  if (annotations.idempotentHint === true) return 'idempotent'
  return annotations.readOnlyHint === false ? 'write' : 'unknown'
}
