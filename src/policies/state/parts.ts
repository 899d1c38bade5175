/** `count` × `share`, which is in (0, 1], rounded down; at least 1. */
export const partOf = (count: number, share: number): number => Math.max(1, Math.floor(count * share))

/** Why a limit of so many calls cannot be divided by shares of which the smallest is `share`; undefined when it can. */
export function indivisible(what: string, count: number, share: number): string | undefined {
  if (count * share >= 1) return undefined
  return `a limit of ${count} ${what} cannot be divided: the smallest part of them is ${Number((count * share).toPrecision(2))}`
}
