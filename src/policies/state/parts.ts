/** `count` × `share`, which is in (0, 1], rounded down; at least 1. */
export const partOf = (count: number, share: number): number => Math.max(1, Math.floor(count * share))

/** Why a limit of so many calls cannot be divided by these shares, which are 1 together; undefined when it can. */
export function indivisible(what: string, count: number, shares: readonly number[]): string | undefined {
  const together = shares.reduce((sum, share) => sum + partOf(count, share), 0)
  if (together <= count) return undefined
  return `a limit of ${count} ${what} cannot be divided in ${shares.length}: with one for each part at least, it would be ${together}`
}
