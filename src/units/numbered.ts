/** A count with its noun, which takes an `s` unless there is one: `1 call`, `2 calls`. */
export const numbered = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`

/** Most names that one sentence tells. */
const MOST_NAMES = 20

/** The first names, and how many more there are. */
export function firstOf(names: readonly string[]): string {
  const more = names.length - MOST_NAMES
  return names.slice(0, MOST_NAMES).join(', ') + (more > 0 ? `, and ${more} more` : '')
}
