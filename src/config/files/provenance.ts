const texts = new WeakMap<object, ReadonlySet<string>>()

/** Remembers, for as long as any object within `value` lives, which texts its load took from variables. */
export function rememberInterpolated(value: object, interpolated: ReadonlySet<string>): void {
  const folded = new Set([...interpolated].map((text) => text.toLowerCase()))
  for (const object of objectsWithin(value)) texts.set(object, folded)
}

/**
 * Whether a text within `value` came out of a variable. Objects that were copied are known by those inside
 * them that were not, and texts by what they say: whatever equals a secret is as secret, wherever it stands.
 */
export function interpolatedWithin(value: object): (text: string) => boolean {
  const known = new Set(objectsWithin(value).map((object) => texts.get(object)))
  return (text) => [...known].some((set) => set?.has(text.toLowerCase()))
}

function objectsWithin(value: unknown): object[] {
  if (typeof value !== 'object' || value === null) return []
  return [value, ...Object.values(value).flatMap(objectsWithin)]
}
