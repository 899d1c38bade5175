import { isObject } from '../../protocol/jsonrpc.ts'
import { encodeHeaderValue } from '../../protocol/versions.ts'
import { isWider } from '../../protocol/output-schema.ts'

/** An argument to repeat in a header. */
interface Mirrored {
  readonly path: readonly string[]
  /** The full header name, in lower case. */
  readonly header: string
}

interface Rules {
  readonly mirrored: readonly Mirrored[]
  /** Whether structured content needs a wrapping object in the legacy era; undefined without a schema. */
  readonly wraps: boolean | undefined
}

const MAX_TOOLS = 20_000

const HEADER_KEY = 'x-mcp-header'

/** Deepest argument repeated in a header, in steps of its path, and most per tool. */
const DEEPEST = 32
const MAX_MIRRORED = 100

/** The characters allowed in a header name. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Facts about a server's tools for legacy clients, learned from passing tool lists, for all replicas together. */
export class ToolCallRules {
  readonly #tools = new Map<string, Rules>()

  /** Learns from the response to a `tools/list`. */
  learn({ result }: Readonly<Record<string, unknown>>): void {
    const tools: unknown = isObject(result) ? result.tools : undefined
    if (!Array.isArray(tools)) return
    for (const tool of tools as unknown[]) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue
      const { name, inputSchema, outputSchema } = tool
      const wraps = outputSchema === undefined ? undefined : isWider(outputSchema)
      if (this.#tools.size < MAX_TOOLS)
        this.#tools.set(name, { mirrored: mirroredIn(inputSchema, []), wraps })
    }
  }

  wraps(tool: string): boolean | undefined {
    return this.#tools.get(tool)?.wraps
  }

  headers(tool: string, args: unknown): Record<string, string> | undefined {
    const mirrored = this.#tools.get(tool)?.mirrored
    if (mirrored === undefined || mirrored.length === 0) return undefined
    const headers: Record<string, string> = {}
    for (const { path, header } of mirrored) {
      const value = path.reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), args)
      const isSet = typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)
      if (isSet) headers[header] = encodeHeaderValue(String(value))
    }
    return headers
  }
}

function mirroredIn(schema: unknown, path: readonly string[], found: Mirrored[] = []): Mirrored[] {
  if (!isObject(schema) || path.length > DEEPEST || found.length >= MAX_MIRRORED) return found
  const name = schema[HEADER_KEY]
  if (typeof name === 'string' && TOKEN.test(name) && path.length > 0)
    found.push({ path, header: `mcp-param-${name.toLowerCase()}` })
  if (isObject(schema.properties))
    for (const [key, property] of Object.entries(schema.properties))
      mirroredIn(property, [...path, key], found)
  return found
}
