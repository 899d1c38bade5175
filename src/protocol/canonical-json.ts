/** Deepest nesting by default, in levels, so that no value exhausts the stack. */
const DEEPEST = 1_000

interface CanonicalOptions {
  /** Levels of objects and arrays; at least 0, by default 1,000. */
  readonly maxDepth?: number
  /** Called with each value before writing, nested values too; an error thrown here ends the writing. */
  readonly visit?: (value: unknown) => void
}

/**
 * Returns JSON without white space, with object keys in the order of their UTF-16 code units: equal values give equal
 * texts, whatever their key order. Skips undefined members, as `JSON.stringify` does. Undefined when the value nests
 * deeper than `maxDepth`. Hashes on disk depend on the text: never change its format.
 */
export function canonicalJson(value: unknown, { maxDepth = DEEPEST, visit }: CanonicalOptions = {}) {
  return write(value, maxDepth, visit)
}

function write(value: unknown, levels: number, visit: CanonicalOptions['visit']): string | undefined {
  visit?.(value)
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null)
  if (levels === 0) return undefined
  const parts: string[] = []
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      const text = write(item, levels - 1, visit)
      if (text === undefined) return undefined
      parts.push(text)
    }
    return `[${parts.join()}]`
  }
  const members = value as Readonly<Record<string, unknown>>
  for (const key of Object.keys(members).sort()) {
    if (members[key] === undefined) continue
    const text = write(members[key], levels - 1, visit)
    if (text === undefined) return undefined
    parts.push(`${JSON.stringify(key)}:${text}`)
  }
  return `{${parts.join()}}`
}
