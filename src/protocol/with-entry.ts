type Fields = Readonly<Record<string, unknown>>

/**
 * A copy of a parsed JSON object with one more entry, or another one in its place: calls on their way out are copied every time.
 * For V8 a copy with the same keys is a copy of memory; one more key behind it takes longer than to write all of them anew.
 */
export function withEntry(object: Fields, key: string, entry: unknown): Fields {
  if (Object.hasOwn(object, key)) return { ...object, [key]: entry }
  const copy: Record<string, unknown> = { [key]: entry }
  for (const name in object) {
    // To assign it would change what the copy inherits.
    if (name === '__proto__') return { ...object, [key]: entry }
    if (name !== key) copy[name] = object[name]
  }
  return copy
}
