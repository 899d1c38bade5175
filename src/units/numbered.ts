/** Formats a count with its noun: `1 call`, `2 calls`. */
export const numbered = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`

const MOST_NAMES = 20

/** Joins the first 20 names, and appends the number of further names. */
export function firstOf(names: readonly string[]): string {
  const more = names.length - MOST_NAMES
  return names.slice(0, MOST_NAMES).join(', ') + (more > 0 ? `, and ${more} more` : '')
}
