import { seeded } from '../../support/random.ts'
import type { Failure, Target } from '../target.ts'

/** A property for many millions of cheap cases; fast-check would take most of the time. */

/** Cases from which the share of accepted cases is checked. */
const ENOUGH = 10_000

/** The fate of a case: `accepted` and `refused` by the reader under test; otherwise a contradiction to llhttp. */
export type Fate = 'accepted' | 'refused' | { readonly given: string; readonly wrong: string }

/**
 * Makes a target of a function that draws and judges a case. Fails, too, if the share of accepted cases is too small or
 * too large: a reader that never accepts anything cannot contradict anybody.
 */
export function countedTarget(
  name: string,
  tryOne: (random: () => number) => Fate,
  { shortRuns, least = 0.2, most = 0.9 }: { shortRuns: number; least?: number; most?: number },
): Target {
  let all = 0
  let accepted = 0
  const check = ({ seed, numRuns, path }: Parameters<Target['check']>[0]): Failure | undefined => {
    const first = path === undefined ? 0 : Number(path)
    const before = accepted
    for (let turn = first; turn < first + (path === undefined ? numRuns : 1); turn++) {
      const fate = fateOf(tryOne, seeded(Math.imul(seed, 0x9e3779b1) ^ Math.imul(turn + 1, 0x85ebca6b)))
      all++
      if (fate === 'accepted') accepted++
      else if (fate !== 'refused')
        return { seed, path: String(turn), report: `${fate.wrong}\n${shown(fate.given)}` }
    }
    const share = (accepted - before) / numRuns
    if (path !== undefined || numRuns < ENOUGH || (share >= least && share <= most)) return undefined
    return { seed, path: '0', report: `accepted ${share}, not between ${least} and ${most}` }
  }
  return {
    name,
    shortRuns,
    check: (parameters) => Promise.resolve(check(parameters)),
    tally: () =>
      `${accepted} accepted (${((100 * accepted) / Math.max(1, all)).toFixed(1)} %), ${all - accepted} refused`,
  }
}

function fateOf(tryOne: (random: () => number) => Fate, random: () => number): Fate {
  try {
    return tryOne(random)
  } catch (error) {
    return { given: '', wrong: error instanceof Error ? String(error.stack) : String(error) }
  }
}

/** Returns a text as JSON, with long runs of a character abbreviated. */
const shown = (text: string) =>
  JSON.stringify(text).replace(/(.)\1{40,}/g, (run, char: string) => `${char}…(${run.length} times)`)
