import { subjects } from '../../claims/subjects.ts'
import type { RunSummary } from '../../evidence/summary.ts'
import { printable } from '../../telemetry/printable.ts'
import { roundedDuration } from '../../units/duration.ts'
import { verdictLines } from '../shared/verdict-lines.ts'
import { type Asked, dateOf, numberOf, oneEach, percent, rows } from './asked.ts'

/** Returns a run as readable lines. `record`: the file of its record in the journal; null for a removed record. */
export function linesOf(
  run: RunSummary & { readonly record: string | null },
  asked: Asked,
): readonly string[] {
  const { id, at, tookMs, approver, approverProof, environment, rto } = run
  // A line break in a name would begin a line of its own, such as a false approval.
  const [name, by] = [printable(run.name), printable(run.by)]
  const { measuredMs, promisedMs } = rto
  const approved =
    approver === null
      ? 'not approved'
      : `approved by ${printable(approver)} (proof: ${approverProof ?? 'claimed'})`
  return [
    `plan ${name}, run ${id}`,
    ...verdictLines(run),
    `began ${dateOf(at)} UTC, took ${roundedDuration(tookMs)}, in ${environment}, by ${by}, ${approved}`,
    run.measuredBy === 'gateway'
      ? `${run.kind}, measured by the gateway`
      : `${run.kind}, measured by a client: a claim by the holder of the ${by}`,
    `state of the run: ${run.state}`,
    `servers: ${oneEach(run.targets.map(({ server }) => server))}`,
    measuredMs === null
      ? 'recovery: not measured'
      : `recovery: ${roundedDuration(measuredMs)} after the first effect of a fault`,
    `promised recovery time: ${promisedMs === null ? 'none' : roundedDuration(promisedMs)}`,
    run.record === null ? 'record: removed from the journal' : `record: ${run.record}`,
    '',
    ...rows(
      asked,
      ['CLAIM', 'STATUS', 'MEASURED', '95 % INTERVAL', 'CALLS'],
      run.claims.map((claim) => [
        claim.text,
        claim.status.replaceAll('_', ' '),
        valueOf(claim.value, claim),
        intervalOf(claim),
        claim.n,
      ]),
      'no claims',
    ),
    '',
    ...rows(
      asked,
      ['STAGE', 'ARM', 'CALLS', 'FAILED'],
      run.windows.map(({ stage, arm, calls, failed }) => [
        stage === null ? '–' : String(stage + 1),
        arm,
        calls,
        failed,
      ]),
      'no stages',
    ),
    '',
    ...rows(
      asked,
      ['FAULT', 'TYPE', 'TOOK EFFECT', 'MASKED', 'DELAYED', 'SURFACED', 'ESCAPED', 'NOT REACHED'],
      run.faults.map((one) => [
        one.name,
        one.type,
        one.applied,
        one.masked,
        one.delayed,
        one.surfaced,
        one.escaped,
        one.notReached,
      ]),
      'no faults',
    ),
  ]
}

type ShownClaim = RunSummary['claims'][number]

/** Returns a measured value with the unit of the claim's subject. */
function valueOf(value: number | null, { text }: Pick<ShownClaim, 'text'>): string {
  if (value === null) return 'unknown'
  const subject = /^\w+/.exec(text)?.[0] ?? ''
  const unit = Object.hasOwn(subjects, subject) ? subjects[subject as keyof typeof subjects].unit : 'count'
  if (unit === 'ms') return roundedDuration(value)
  return unit === 'share' ? percent(value) : numberOf(value)
}

function intervalOf(claim: ShownClaim): string {
  const { low, high } = claim
  if (low === null) return high === null ? '–' : `at most ${valueOf(high, claim)}`
  return high === null
    ? `at least ${valueOf(low, claim)}`
    : `${valueOf(low, claim)} to ${valueOf(high, claim)}`
}
