/** The maximum cost of matching: about `steps * (length + 1) ** degree` for a subject of this length. */
export interface PatternCost {
  /** In how many ways the pattern can match at a place; each may be tried. */
  readonly ways: number
  /** The steps to try all of these ways. */
  readonly steps: number
  /** How many repetitions without an upper bound compete for the subject; Infinity when nested. */
  readonly degree: number
}

/** A group, or the whole pattern: the present alternative, and earlier ones. */
interface Part {
  now: PatternCost
  before: PatternCost | undefined
  /** The last atom, repeated by a following quantifier. */
  atom: PatternCost
  /** The body of the last atom if the atom is a group that takes part in the match; empty otherwise. */
  body: string
  /** Where the group's body begins, after a head such as `(?:`; 0 for a lookaround group. */
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
 * Returns an upper bound of a backtracking engine's work on a pattern. A repetition without an upper bound may take
 * exponential time if its body can match in several ways (through a quantifier or alternatives). The repetition counts
 * as exponential (`hopeless`) unless a character marks the end of each round (`isDelimited`). Back references count as
 * exponential, too. The bound is far too high for many patterns, and too low for none.
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

/**
 * Adds the last atom to the part's cost. The rest of the pattern is tried after each way in which the part so far
 * matches.
 */
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

/** Returns the cost of all alternatives, then starts the part over. Even a way with nothing to match takes a step. */
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
  // All rounds together read the text once, and once more when they give text back.
  if (varies && most > 1 && isDelimited(body)) return { ways: 1, steps: 2 * steps, degree: 1 }
  if (most !== Infinity)
    return {
      ways: ways ** most * (most - least + 1),
      steps: steps * ways ** (most - 1) * most,
      degree: degree * most,
    }
  return varies ? hopeless : { ways: 1, steps: Math.max(1, steps), degree: 1 }
}

/** One character of a group's body, with its quantifier; other escapes than these may mean anything. */
const atoms =
  /(\\[dDwWsS]|\\[^0-9A-Za-z]|\[(?:\\[dDwWsS]|\\[^0-9A-Za-z]|[^\]\\])*\]|\.|[^\\[\](){}*+?|^$.])((?:[*+?]|\{\d+(?:,\d*)?\})\??)?/gy

/** A literal character, in ASCII. */
const literal = /^(?:[ --/-~]|\\[ -/:-@[-`{-~])$/

const isFixed = (quantifier: string | undefined): boolean => {
  if (quantifier === undefined) return true
  const [least, most] = bounds(quantifier)
  return least === most
}

/**
 * Returns whether a repeated group can divide a text among its rounds in only one way, as in `(?:-[a-z]+)*` or
 * `(?:[^/]+/)*`. Each round must begin, or each must end, with a character that nothing else in the round matches. At
 * most one part of the round may vary in length.
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

/** Returns whether an atom matches a character; assumes so for an atom that is no pattern by itself. */
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
