/** The most that matching can cost: about `steps * (length + 1) ** degree` for a subject of that length. */
export interface PatternCost {
  /** In how many ways it can match at one place, of which each may be tried. */
  readonly ways: number
  /** The steps to try all of these ways. */
  readonly steps: number
  /** How many repetitions without an upper bound compete for the subject; Infinity when they are nested. */
  readonly degree: number
}

/** A group, or the whole: the alternative of now, and those before it. */
interface Part {
  now: PatternCost
  before: PatternCost | undefined
  /** The last atom, which is repeated when a quantifier follows. */
  atom: PatternCost
  /** The body of the last atom if the atom is a group that takes part in the match; empty otherwise. */
  body: string
  /** Where it begins itself, behind its head; 0 for a group that looks around. */
  readonly start: number
}

const empty: PatternCost = { ways: 1, steps: 0, degree: 0 }
const character: PatternCost = { ways: 1, steps: 1, degree: 0 }
export const linear: PatternCost = { ways: 1, steps: 1, degree: 1 }
export const hopeless: PatternCost = { ways: 1, steps: 1, degree: Infinity }

const newPart = (start = 0): Part => ({ now: empty, before: undefined, atom: empty, body: '', start })

/** One token: an escape, a class, the head of a group, a quantifier with its laziness, or any character. */
const token =
  /\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|\(\?(?:[:=!]|<[=!]|<[^>]*>)|(?:[*+?]|\{\d+(?:,\d*)?\})\??|[\s\S]/y

/**
 * An upper bound of what a backtracking engine spends on a pattern. A repetition without an upper bound whose body
 * can match in more than one way (it holds a quantifier or alternatives) may take exponential time, and counts as
 * hopeless unless something marks where each round ends (`isDelimited`); so do back references. Far too careful for many
 * patterns, too generous for none.
 */
export function patternCost(pattern: string): PatternCost {
  const open: Part[] = []
  let part = newPart()
  token.lastIndex = 0
  for (let found = token.exec(pattern); found !== null; found = token.exec(pattern)) {
    const text = found[0]
    if (/^\\[1-9k]/.test(text)) return hopeless
    if (text === '|') part.before = total(part)
    else if (text.startsWith('(')) {
      settle(part)
      open.push(part)
      part = newPart(/^\(\?<?[=!]/.test(text) ? 0 : token.lastIndex)
    } else if (text === ')') {
      const inner = total(part)
      const body = part.start === 0 ? '' : pattern.slice(part.start, found.index)
      part = open.pop() ?? newPart()
      part.atom = inner
      part.body = body
    } else if (/^(?:[*+?]|\{\d)/.test(text)) {
      part.atom = repeated(part.atom, text, part.body)
      settle(part)
    } else {
      settle(part)
      part.atom = character
    }
  }
  const isAnchored = pattern.startsWith('^') && part.before === undefined
  const { ways, steps, degree } = total(part)
  return { ways, steps, degree: isAnchored ? degree : degree + 1 }
}

/** The last atom is not repeated: whatever follows is tried behind each way in which it and all before it match. */
function settle(part: Part): void {
  const { now, atom } = part
  part.now = {
    ways: now.ways * atom.ways,
    steps: now.steps + now.ways * atom.steps,
    degree: now.degree + atom.degree,
  }
  part.atom = empty
  part.body = ''
}

/** All alternatives of a part, of which each way takes a step at least, also where there is nothing to match; what follows begins anew. */
function total(part: Part): PatternCost {
  settle(part)
  const { now, before = { ways: 0, steps: 0, degree: 0 } } = part
  part.now = empty
  const ways = before.ways + now.ways
  return {
    ways,
    steps: Math.max(ways, before.steps + now.steps),
    degree: Math.max(before.degree, now.degree),
  }
}

function repeated({ ways, steps, degree }: PatternCost, quantifier: string, body: string): PatternCost {
  const [least, most] = bounds(quantifier)
  if (most === 0) return empty
  const varies = ways > 1 || degree > 0
  // All rounds together go through the text once, and once more where they give back what they took.
  if (varies && most > 1 && isDelimited(body)) return { ways: 1, steps: 2 * steps, degree: 1 }
  if (most !== Infinity)
    return {
      ways: ways ** most * (most - least + 1),
      steps: steps * ways ** (most - 1) * most,
      degree: degree * most,
    }
  return varies ? hopeless : { ways: 1, steps: Math.max(1, steps), degree: 1 }
}

/** One character of a group's body, and how often it is repeated; other escapes than these may mean anything. */
const atoms =
  /(\\[dDwWsS]|\\[^0-9A-Za-z]|\[(?:\\[dDwWsS]|\\[^0-9A-Za-z]|[^\]\\])*\]|\.|[^\\[\](){}*+?|^$.])((?:[*+?]|\{\d+(?:,\d*)?\})\??)?/gy

/** A character that stands for itself, in ASCII. */
const literal = /^(?:[ --/-~]|\\[ -/:-@[-`{-~])$/

const isFixed = (quantifier: string | undefined): boolean => {
  if (quantifier === undefined) return true
  const [least, most] = bounds(quantifier)
  return least === most
}

/**
 * Whether a repeated group can share out a text among its rounds in one way only, as that of `(?:-[a-z]+)*` or `(?:[^/]+/)*`: each round
 * begins, or each ends, with one character that nothing else in it matches, and no more than one thing in it varies in length.
 */
function isDelimited(body: string): boolean {
  const found = [...body.matchAll(atoms)]
  if (found.map(([text]) => text).join('') !== body) return false
  if (found.filter(([, , quantifier]) => !isFixed(quantifier)).length > 1) return false
  return [0, found.length - 1].some((place) => {
    const [, delimiter = '', quantifier] = found[place] ?? []
    if (quantifier !== undefined || !literal.test(delimiter)) return false
    return found.every(
      ([, atom = ''], other) => other === place || !matches(atom, delimiter.at(-1) as string),
    )
  })
}

/** Whether an atom matches a character; one that is no pattern by itself may do so. */
function matches(atom: string, character: string): boolean {
  try {
    return new RegExp(`^${atom}$`, 'su').test(character)
  } catch {
    return true
  }
}

function bounds(quantifier: string): [number, number] {
  if (quantifier.startsWith('?')) return [0, 1]
  if (!quantifier.startsWith('{')) return [0, Infinity]
  const [least = '', most] = quantifier.replace(/[{}?]/g, '').split(',')
  if (most === undefined) return [Number(least), Number(least)]
  return [Number(least), most === '' ? Infinity : Number(most)]
}
