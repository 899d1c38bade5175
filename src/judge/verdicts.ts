import { newcombeInterval, wilsonInterval } from '../experiments/statistics/proportions.ts'
import type { Interval } from '../experiments/statistics/unit-estimates.ts'
import { type RuleName, ruleNames, rules } from './index.ts'
import type { Finding } from './rule.ts'
import type { Task } from './task.ts'

/** Probability that an interval misses. */
const ALPHA = 0.05

/** A finding of a rule in a task. */
export interface TaskFinding extends Finding {
  readonly rule: RuleName
  /** Digest of the task's name. */
  readonly task: string
}

/** Why a rule cannot tell for some tasks, and for how many. */
export interface Undecided {
  readonly why: string
  readonly tasks: number
}

/** The tasks of a recording, by the judgement of a rule. */
export interface RuleCounts {
  /** Tasks with a finding. */
  readonly found: number
  /** Tasks with a proven finding, among the found tasks. */
  readonly proven: number
  /** Tasks with input for the rule. */
  readonly decidable: number
  readonly undecided: readonly Undecided[]
}

export interface Verdicts {
  readonly tasks: number
  readonly findings: readonly TaskFinding[]
  /** The counts of every rule. */
  readonly rules: ReadonlyMap<RuleName, RuleCounts>
}

/** Judges each task by each rule. */
export function judge(tasks: readonly Task[]): Verdicts {
  const findings: TaskFinding[] = []
  const counts = (rule: RuleName): RuleCounts => {
    let [found, proven, decidable] = [0, 0, 0]
    const why = new Map<string, number>()
    for (const task of tasks) {
      const { findings: own, undecided } = rules[rule].judge(task)
      if (undecided !== undefined) {
        why.set(undecided, (why.get(undecided) ?? 0) + 1)
        continue
      }
      decidable++
      if (own.length > 0) found++
      if (own.some(({ level }) => level === 'proven')) proven++
      for (const finding of own) findings.push({ rule, task: task.id, ...finding })
    }
    return { found, proven, decidable, undecided: [...why].map(([why, tasks]) => ({ why, tasks })) }
  }
  const counted = new Map(ruleNames.map((rule) => [rule, counts(rule)]))
  return { tasks: tasks.length, findings, rules: counted }
}

/** The share of found tasks with its interval, and the difference from a run without faults. */
export interface RuleSummary extends RuleCounts {
  readonly rule: RuleName
  /** Null without decidable tasks. */
  readonly share: Interval | null
  /** The baseline's counts; undefined without a baseline. */
  readonly baseline?: RuleCounts
  /** This share minus the baseline's. Null when either has no decidable task; undefined without a baseline. */
  readonly difference?: Interval | null
}

/** Returns the summary of each rule: Wilson's intervals of shares, Newcombe's of differences, all of 95 %. */
export function summarize({ rules }: Verdicts, baseline?: Verdicts): readonly RuleSummary[] {
  return ruleNames.map((rule) => {
    const counts = rules.get(rule)!
    const own = countOf(counts)
    const summary = { rule, ...counts, share: own.units === 0 ? null : wilsonInterval(own, ALPHA) }
    if (baseline === undefined) return summary
    const before = baseline.rules.get(rule)!
    const isKnown = own.units > 0 && before.decidable > 0
    const difference = isKnown ? newcombeInterval(countOf(before), own, ALPHA) : null
    return { ...summary, baseline: before, difference }
  })
}

const countOf = ({ found, decidable }: RuleCounts) => ({ successes: found, units: decidable })
