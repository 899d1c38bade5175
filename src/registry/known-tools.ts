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
      return [entry.key, known?.fingerprint === entry.fingerprint ? known : new Known(entry)]
    }),
  )
}

/** Schemas are read when the first call asks for them: of most tools nobody ever does. */
class Known implements KnownTool {
  readonly fingerprint: string
  readonly annotated: Effect
  readonly #entry: Entry
  #schemas: Pick<ToolFacts, 'inputSchema' | 'outputSchema'> | undefined

  constructor(entry: Entry) {
    this.#entry = entry
    this.fingerprint = entry.fingerprint
    this.annotated = annotatedEffect(entry.value.annotations)
  }

  get inputSchema(): unknown {
    return this.#read().inputSchema
  }

  get outputSchema(): unknown {
    return this.#read().outputSchema
  }

  #read(): Pick<ToolFacts, 'inputSchema' | 'outputSchema'> {
    if (this.#schemas !== undefined) return this.#schemas
    const { inputSchema, outputSchema } = this.#entry.value
    return (this.#schemas = { inputSchema, outputSchema })
  }
}

/** The protocol's hints; without any of them a tool may do anything. */
function annotatedEffect(annotations: unknown): Effect {
  if (!isObject(annotations)) return 'unknown'
  if (annotations.readOnlyHint === true) return 'read_only'
  if (annotations.idempotentHint === true) return 'idempotent'
  return annotations.readOnlyHint === false ? 'write' : 'unknown'
}
