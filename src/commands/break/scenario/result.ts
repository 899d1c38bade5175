import type { Millis } from '../../../mesh/clock.ts'
import { formatDuration } from '../../../units/duration.ts'
import type { Output } from '../../shared/arguments.ts'
import { faultLine } from '../../run/wrap/report.ts'
import type { Assertion } from './assertions.ts'
import type { Evidence } from './evidence.ts'
import type { ChaosState } from './gateway.ts'
import type { Scenario } from './library.ts'
import type { Judged } from './measures.ts'
import { type Injected, type ScenarioRun, withoutEffect } from './run.ts'
import type { TrafficReport } from './traffic.ts'
import { numbered } from '../../../units/numbered.ts'

export interface Checked extends Judged {
  readonly name: string
}

export interface Result {
  readonly scenario: string
  readonly description: string
  readonly checks: readonly Checked[]
  /** Reasons why the run proves nothing or could not run; empty for a valid run. */
  readonly flaws: readonly string[]
  /** The reason why the run was skipped; a skipped run is not an error. */
  readonly skipped?: string | undefined
  readonly faults: readonly Injected[]
  readonly traffic?: TrafficReport | undefined
  readonly seed?: ChaosState['seed'] | undefined
  /** Planned duration of the faults, in milliseconds. */
  readonly durationMs: Millis
  readonly servers: readonly string[]
  /** Start of the run, in milliseconds since the Unix epoch, and its whole duration. */
  readonly startedAt: Millis
  readonly tookMs: Millis
}

/** `undecided` and `invalid` do not count as passed. */
export type Status = 'passed' | 'failed' | 'undecided' | 'invalid' | 'skipped'

export function statusOf({ checks, flaws, skipped }: Pick<Result, 'checks' | 'flaws' | 'skipped'>): Status {
  if (flaws.length > 0) return 'invalid'
  if (skipped !== undefined) return 'skipped'
  if (checks.some(({ verdict }) => verdict === 'fail')) return 'failed'
  const isDecided = checks.some(({ verdict }) => verdict === 'pass')
  return isDecided && !checks.some(({ verdict }) => verdict === 'undecided') ? 'passed' : 'undecided'
}

/** 0: all runs passed; 1: an assertion failed; 2: something was not decided, or nothing ran. */
export function exitCodeOf(results: readonly Result[]): 0 | 1 | 2 {
  const statuses = results.map(statusOf)
  if (statuses.includes('failed')) return 1
  const others = statuses.filter((status) => status !== 'skipped')
  return others.length > 0 && others.every((status) => status === 'passed') ? 0 : 2
}

export const judged = (assertions: readonly Assertion[], evidence: Evidence): Checked[] =>
  assertions.map(({ name, judge }) => ({ name, ...judge(evidence) }))

/**
 * Returns the result of a run, with a verdict for each assertion unless the run proves nothing. A failed run proves
 * nothing if its faults changed nothing.
 */
export function judgedRun(
  { faults, flaws, evidence }: Pick<ScenarioRun, 'faults' | 'flaws' | 'evidence'>,
  assertions: readonly Assertion[],
): Pick<Result, 'checks' | 'flaws'> {
  if (flaws.length > 0 || evidence === undefined) return { checks: [], flaws }
  const checks = judged(assertions, evidence)
  const idle = checks.some(({ verdict }) => verdict === 'fail') ? withoutEffect(faults) : undefined
  return { checks, flaws: idle === undefined ? flaws : [idle] }
}

/** Prints the plan of the run and the expected reaction of the mesh. */
export function introduce(
  { name, description, expect = [] }: Scenario,
  { server, durationMs, rate }: { server: string; durationMs: Millis; rate: number | undefined },
  out: Output,
): void {
  const calls = rate === undefined ? 'with the calls of others' : `with ${numbered(rate, 'call')} a second`
  out.stdout(`${name}: ${description}`)
  out.stdout(
    `Faults for ${formatDuration(durationMs)} at ${server}, ${calls}.${expect.length > 0 ? ' What to expect:' : ''}`,
  )
  for (const sentence of expect) out.stdout(`  - ${sentence}`)
}

const words = { pass: 'pass', fail: 'FAIL', undecided: '????', skipped: 'skip' } as const

/**
 * Prints a line for each fault's effect, each ending of the run's own calls, and each assertion's result. Prints on
 * standard error why a run proves nothing.
 */
export function report(result: Result, out: Output): void {
  const { faults, traffic, checks, flaws, skipped, scenario } = result
  const paint = out.paint ?? ((_, text) => text)
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const { name, id, counts, whenCleared } of faults) {
    out.stdout(
      counts === undefined ? `${name} (${id}): no counts are known` : faultLine({ ...counts, name }, width),
    )
    if (whenCleared !== undefined && whenCleared.hits > 0 && whenCleared.concurrent > 0)
      out.stdout(
        `${' '.repeat(width)}  held until it was cleared: ${numbered(whenCleared.concurrent, 'call')}`,
      )
  }
  if (traffic !== undefined && traffic.calls > 0) {
    const endings = Object.entries(traffic.endings).map(([word, count]) => `${word} ${count}`)
    out.stdout(`${numbered(traffic.calls, 'call')} made: ${endings.join(', ')}`)
  }
  for (const { verdict, name, measured } of checks) {
    const word = verdict === 'fail' ? paint('bad', words.fail) : words[verdict]
    out.stdout(`${word}  ${name}: ${measured}`)
  }
  for (const flaw of flaws) out.stderr(`breakwater: INVALID: ${flaw}`)
  if (skipped !== undefined) out.stdout(`skip  ${scenario}: ${skipped}`)
  out.stdout(summaryOf(result))
}

/** One line: `hang: passed, 5 of 5 assertions`. */
function summaryOf(result: Result): string {
  const count = (verdict: Judged['verdict']) => result.checks.filter((one) => one.verdict === verdict).length
  const rest = (['fail', 'undecided', 'skipped'] as const).flatMap((verdict) =>
    count(verdict) > 0 ? [`, ${count(verdict)} ${verdict === 'fail' ? 'failed' : verdict}`] : [],
  )
  const { checks } = result
  const of =
    checks.length === 0
      ? ''
      : `, ${count('pass')} of ${numbered(checks.length, 'assertion')} hold${rest.join('')}`
  return `${result.scenario}: ${statusOf(result)}${of}`
}

export function reportAll(results: readonly Result[], out: Output): void {
  if (results.length < 2) return
  const statuses = results.map(statusOf)
  const counts = (['passed', 'failed', 'undecided', 'invalid', 'skipped'] as const).flatMap((status) => {
    const count = statuses.filter((one) => one === status).length
    return count > 0 ? [`${count} ${status}`] : []
  })
  out.stdout(`${results.length} scenarios: ${counts.join(', ')}`)
}

export function asJson(results: readonly Result[]): string {
  const scenarios = results.map((result) => {
    const { checks, faults, durationMs, startedAt, ...rest } = result
    return {
      ...rest,
      status: statusOf(result),
      durationMs,
      startedAt: new Date(startedAt).toISOString(),
      tookMs: Math.round(rest.tookMs),
      assertions: checks,
      faults: faults.map(({ name, id, counts }) => ({ name, id, counts })),
    }
  })
  return JSON.stringify({ exitCode: exitCodeOf(results), scenarios }, undefined, 2)
}
