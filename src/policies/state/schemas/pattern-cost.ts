/** What matching can cost at most: about `factor * (length + 1) ** degree` steps for a subject of that length. */
export interface PatternCost {
  readonly factor: number
  /** How many repetitions without an upper bound compete for the subject; Infinity when they are nested. */
  readonly degree: number
}

interface Part {
  factor: number
  degree: number
  alternatives: number
  /** What the last atom would be repeated as, when a quantifier follows. */
  atom: PatternCost
}

const plain: PatternCost = { factor: 1, degree: 0 }
const hopeless: PatternCost = { factor: 1, degree: Infinity }

const newPart = (): Part => ({ factor: 1, degree: 0, alternatives: 1, atom: plain })

/** One token: an escape, a class, the head of a group, a quantifier with its laziness, or any character. */
const token =
  /\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|\(\?(?:[:=!]|<[=!]|<[^>]*>)|(?:[*+?]|\{\d+(?:,\d*)?\})\??|[\s\S]/y

/**
 * An upper bound of what a backtracking engine spends on a pattern. A repetition without an upper bound whose body
 * can match in more than one way (it holds a quantifier or alternatives) may take exponential time, and counts as
 * hopeless; so do back references. Far too careful for many patterns, too generous for none.
 */
export function patternCost(pattern: string): PatternCost {
  const open: Part[] = []
  let part = newPart()
  token.lastIndex = 0
  for (let found = token.exec(pattern); found !== null; found = token.exec(pattern)) {
    const text = found[0]
    if (/^\\[1-9k]/.test(text)) return hopeless
    if (text === '|') part.alternatives++
    else if (text.startsWith('(')) {
      settle(part, part.atom)
      part.atom = plain
      open.push(part)
      part = newPart()
    } else if (text === ')') {
      const inner = total(part)
      part = open.pop() ?? newPart()
      part.atom = inner
    } else if (/^(?:[*+?]|\{\d)/.test(text)) {
      settle(part, repeated(part.atom, text))
      part.atom = plain
    } else {
      settle(part, part.atom)
      part.atom = plain
    }
  }
  const { factor, degree } = total(part)
  return { factor, degree: pattern.startsWith('^') && part.alternatives === 1 ? degree : degree + 1 }
}

function settle(part: Part, { factor, degree }: PatternCost): void {
  part.factor *= factor
  part.degree += degree
}

function total(part: Part): PatternCost {
  settle(part, part.atom)
  part.atom = plain
  return { factor: part.factor * part.alternatives, degree: part.degree }
}

function repeated({ factor, degree }: PatternCost, quantifier: string): PatternCost {
  const [least, most] = bounds(quantifier)
  if (most !== Infinity) return { factor: factor ** most * (most - least + 1), degree: degree * most }
  return factor > 1 || degree > 0 ? hopeless : { factor: 1, degree: 1 }
}

function bounds(quantifier: string): [number, number] {
  if (quantifier.startsWith('?')) return [0, 1]
  if (!quantifier.startsWith('{')) return [0, Infinity]
  const [least = '', most] = quantifier.replace(/[{}?]/g, '').split(',')
  if (most === undefined) return [Number(least), Number(least)]
  return [Number(least), most === '' ? Infinity : Number(most)]
}
