/** Most suggestions of equal distance. */
const MOST = 3

/** Shortest part of a name compared alone, in characters: shorter parts are close to any word. */
const SHORTEST_PART = 3

/** Returns the closest candidate, if any is close. */
export function suggest(word: string, candidates: readonly string[]): string | undefined {
  return suggestions(word, candidates)[0]
}

/** Returns the end of a sentence, such as `; did you mean latency?`; empty when no candidate is close. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const meant = suggest(word, candidates)
  return meant === undefined ? '' : `; did you mean ${meant}?`
}

/**
 * Returns up to three closest candidates, all of equal distance. Ignores case, `-` and `_`. Allows a typing error per
 * three characters, and at least one in a word of two. Also matches a part of a longer name, such as `latency` of
 * `conn.latency`.
 */
export function suggestions(word: string, candidates: readonly string[]): string[] {
  const plain = simplify(word)
  const limit = plain.length === 1 ? 0 : Math.max(1, Math.floor(plain.length / 3))
  const close = candidates
    .map((candidate) => ({ candidate, distance: distanceOf(plain, candidate, limit) }))
    .filter(({ distance }) => distance < Infinity)
  const least = Math.min(...close.map(({ distance }) => distance))
  return close.flatMap(({ candidate, distance }) => (distance === least ? [candidate] : [])).slice(0, MOST)
}

/** Returns the distance to a candidate, or to its nearest part plus 1; Infinity past `limit`. */
function distanceOf(plain: string, candidate: string, limit: number): number {
  const whole = editDistance(plain, simplify(candidate))
  if (whole <= limit) return whole
  const parts = candidate.split(/[_.]/).filter((part) => part.length >= SHORTEST_PART)
  const nearest = Math.min(...parts.map((part) => editDistance(plain, simplify(part))))
  return nearest <= limit ? nearest + 1 : Infinity
}

const simplify = (word: string) => word.toLowerCase().replace(/[-_]/g, '').slice(0, 64)

/** Returns the least number of insertions, deletions, substitutions and swaps of neighbours to turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1]
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]
      current[column] = Math.min(
        (last[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (same ? 0 : 1),
        swapped ? (beforeLast[column - 2] ?? 0) + 1 : Infinity,
      )
    }
    beforeLast = last
    last = current
  }
  return last[b.length] ?? 0
}
