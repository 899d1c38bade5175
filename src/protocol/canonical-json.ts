/** Deepest nesting that is written unless somebody says otherwise, in levels: nobody may exhaust the stack. */
const DEEPEST = 1_000

interface CanonicalOptions {
  /** Levels of objects and arrays; at least 0, by default 1,000. */
  readonly maxDepth?: number
  /** Sees each value before it is written, those within others too; what it throws ends the writing. */
  readonly visit?: (value: unknown) => void
}

/**
 * JSON without white space, with the keys of every object in the order of their UTF-16 code units: the same text for
 * equal values, whatever the order of their keys. Members that are undefined are left out, as `JSON.stringify` does.
 * Undefined when the value nests deeper than `maxDepth`. The text is the source of hashes on disk: it must not change.
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
