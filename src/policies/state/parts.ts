/** Of a number of calls, those that a share of them in (0, 1] comes to: whole ones, and one at least. */
export const partOf = (count: number, share: number): number => Math.max(1, Math.floor(count * share))

/** Why a limit of so many calls cannot be divided by shares of which the smallest is `share`; undefined when it can. */
export function indivisible(what: string, count: number, share: number): string | undefined {
  if (count * share >= 1) return undefined
  return `a limit of ${count} ${what} cannot be divided: the smallest part of them is ${Number((count * share).toPrecision(2))}`
}
