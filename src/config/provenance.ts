const variableKeys = new WeakMap<object, Set<string>>()

/**
 * Remembers which strings within `value` came out of a variable, for as long as the objects around them live.
 * By their text: whatever equals such a string is as secret, wherever it stands.
 */
export function markInterpolated(value: unknown, interpolated: ReadonlySet<string>): void {
  const texts = new Set([...interpolated].map((text) => text.toLowerCase()))
  const visit = (held: object): void => {
    for (const [key, inside] of Object.entries(held) as [string, unknown][]) {
      if (typeof inside === 'object' && inside !== null) visit(inside)
      if (typeof inside !== 'string' || !texts.has(inside.toLowerCase())) continue
      variableKeys.set(held, (variableKeys.get(held) ?? new Set()).add(key))
    }
  }
  if (typeof value === 'object' && value !== null && texts.size > 0) visit(value)
}

/** Whether the string under `key` of `holder` came out of a variable. */
export function isInterpolated(holder: object, key: string | number): boolean {
  return variableKeys.get(holder)?.has(String(key)) ?? false
}
