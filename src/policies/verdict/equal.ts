/** The JSON Pointer of the first place where two JSON values differ; undefined when they are equal. */
export function difference(a: unknown, b: unknown): string | undefined {
  if (a === b) return undefined
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return ''
  if (Array.isArray(a) !== Array.isArray(b)) return ''
  const left = a as Readonly<Record<string, unknown>>
  const right = b as Readonly<Record<string, unknown>>
  let keys = 0
  for (const key in left) {
    keys++
    if (!Object.hasOwn(right, key)) return `/${key}`
    const inner = difference(left[key], right[key])
    if (inner !== undefined) return `/${key}${inner}`
  }
  let others = 0
  for (const _ in right) others++
  return keys === others ? undefined : ''
}

/** Whether two objects have the same names at their top. */
export function haveSameKeys(a: object, b: object): boolean {
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key))
}
