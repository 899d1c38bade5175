/** Whether a JSON value holds lists and objects inside each other more than `most` times; whatever its depth. */
export function nestsDeeper(value: unknown, most: number): boolean {
  let level: unknown[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    const next: unknown[] = []
    for (const held of level) {
      if (typeof held !== 'object' || held === null) continue
      if (depth === most) return true
      for (const inner of Object.values(held)) next.push(inner)
    }
    level = next
  }
  return false
}
