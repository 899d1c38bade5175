/** How alike two words have to be to be taken for each other, in [0, 1]. */
const ALIKE = 0.4

/** How close others have to come to the nearest to be told too. */
const CLOSE = 0.8

/** Up to three of `names` that `word` may have been meant to be, the nearest first: by the pairs of letters they share. */
export function near(word: string, names: readonly string[]): string[] {
  const wanted = pairs(word)
  const scored = names.map((name) => ({ name, score: likeness(wanted, pairs(name)) }))
  const best = Math.max(ALIKE, ...scored.map(({ score }) => score * CLOSE))
  const alike = scored.filter(({ score }) => score >= best).sort((a, b) => b.score - a.score)
  return alike.slice(0, 3).map(({ name }) => name)
}

/** Sørensen and Dice: twice what both have, over what each has. */
function likeness(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  const shared = [...a].filter((pair) => b.has(pair)).length
  return (2 * shared) / Math.max(1, a.size + b.size)
}

function pairs(word: string): ReadonlySet<string> {
  const plain = word
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '')
    .slice(0, 64)
  return new Set(Array.from({ length: Math.max(0, plain.length - 1) }, (_, at) => plain.slice(at, at + 2)))
}
