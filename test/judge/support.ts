import { type Contract, contract as schema, type KindContract } from '../../src/judge/contract.ts'
import { type RuleName, rules } from '../../src/judge/index.ts'
import type { Judgement } from '../../src/judge/rule.ts'
import { tasksIn } from '../../src/judge/task.ts'
import type { RecordedCall } from '../../src/telemetry/recording/format.ts'
import { call } from '../sim/recorded.ts'

export interface Given {
  readonly calls: readonly Partial<RecordedCall>[]
  /** Default: no report. */
  readonly outcome?: string
  /** Default: none. */
  readonly contract?: Partial<Contract>
  readonly kinds?: readonly KindContract[]
  readonly hasGaps?: boolean
}

/** Returns the judgement of a rule on a task. The lines of the calls are 2, 3, and so on. */
export function judgementOf(
  rule: RuleName,
  { calls, outcome, contract, kinds, hasGaps = false }: Given,
): Judgement {
  const lines = calls.map((one) => call({ replyKey: 'reply', ...one }))
  const own = contract === undefined ? [] : [{ tools: undefined, contract: schema.parse(contract) }]
  const [task] = tasksIn(
    {
      calls: lines.toSorted((one, other) => one.at - other.at),
      places: new Map(lines.map((one, at) => [one, { file: 'calls.jsonl', line: at + 2 }])),
      outcomes: outcome === undefined ? [] : [{ task: 'task', outcome, at: 1e6 }],
      hasGaps,
    },
    kinds ?? own,
  )
  return rules[rule].judge(task!)
}

/** Returns a judgement in short: `clean`, `not decidable`, or each level with the lines. */
export function shortly({ findings, undecided }: Judgement): string {
  if (undecided !== undefined) return 'not decidable'
  if (findings.length === 0) return 'clean'
  return findings.map(({ level, calls }) => `${level} ${calls.map(({ line }) => line).join(' ')}`).join(', ')
}

export const verdictOn = (rule: RuleName, given: Given): string => shortly(judgementOf(rule, given))

/** A write without an answer, which may have run. */
export const lost = (more: Partial<RecordedCall> = {}): Partial<RecordedCall> => ({
  tool: 'buy',
  effect: 'write',
  key: 'buy',
  result: 'timeout',
  reason: 'attempt_timeout',
  wrong: true,
  told: { sent: true },
  attempts: [],
  ...more,
})

/** A write that has run. */
export const bought = (more: Partial<RecordedCall> = {}): Partial<RecordedCall> => ({
  tool: 'buy',
  effect: 'write',
  key: 'buy',
  ...more,
})
