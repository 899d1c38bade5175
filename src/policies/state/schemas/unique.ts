import { charge } from './steps.ts'

/** Whether no two items are equal as JSON values; in one pass, where comparing each with each takes forever. */
export function areUnique(items: readonly unknown[]): boolean {
  const seen = new Set<unknown>()
  for (const item of items) {
    const key = typeof item === 'object' ? canonical(item) : typeof item === 'string' ? `"${item}` : item
    if (seen.has(key)) return false
    seen.add(key)
    charge(1)
  }
  return true
}

function canonical(value: unknown): string {
  charge(1)
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join()}}`
}
