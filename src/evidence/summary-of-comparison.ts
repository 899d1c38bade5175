import type { EndedRun } from '../experiments/experiments.ts'
import { hashOf } from '../experiments/guarded/spec.ts'
import type { HitFault } from '../experiments/samples.ts'
import { armInWords, controlOf, splitOf } from '../experiments/schema.ts'
import type { Verdict, VerdictResult } from '../experiments/statistics/verdict.ts'
import { newRunId } from './hand-in.ts'
import type { RunSummary } from './summary.ts'
import type { GatewayFacts } from './summary-of.ts'
import { judgementByClaims } from './verdict-by-claims.ts'
import type { Reason } from './verdict-names.ts'

/** Facts about the gateway of a comparison. `targets`: the tools that could take part. */
export interface ComparisonFacts extends Omit<GatewayFacts, 'effectOf'> {
  readonly environment: string
  readonly config: string
  readonly targets: RunSummary['targets']
}

/**
 * Returns the summary of an ended comparison of policy sets. The claim about each treatment is that the treatment is
 * not worse than the control: `better` and `no_difference_found` prove the claim, and `worse` breaks the claim.
 */
export function summaryOfComparison(run: EndedRun, facts: ComparisonFacts): RunSummary {
  const { experiment, policies, startedAtWall, ranMs, isStopped } = run
  const { config, targets, ...gateway } = facts
  // A salt may be secret.
  const { salt: _, ...plan } = experiment
  const { name, active: __, ...shape } = plan
  const arms = armsOf(run)
  const judged = {
    kind: 'comparison' as const,
    arms: arms.map(({ window: _, ...arm }) => arm),
    faults: run.faults.map(faultOf),
    claims: claimsOf(run),
    state: isStopped ? 'stopped' : 'completed',
    reasons: [...reasonsIn(run)],
  }
  const { verdict, reasons } = judgementByClaims(judged)
  return {
    format: 1,
    id: newRunId('comparison', startedAtWall),
    name,
    plan: hashOf(plan),
    shape: hashOf(shape),
    at: startedAtWall,
    tookMs: ranMs,
    ...gateway,
    measuredBy: 'gateway',
    document: null,
    hashes: {
      config,
      policies: hashOf(policies),
      faults: hashOf(run.faults.map(({ name, type }) => ({ name, type }))),
      targets: hashOf(targets),
      load: hashOf('real'),
    },
    seed: null,
    by: 'operator',
    approver: null,
    approverProof: null,
    envelope: null,
    trust: null,
    targets,
    load: { model: 'real', rate: null, concurrency: null },
    ...judged,
    windows: arms.map(({ window }) => window),
    transitions: [],
    recoveries: [],
    estimates: [],
    rto: { promisedMs: null, measuredMs: null },
    everyMs: null,
    verdict,
    reasons: [...reasons],
    share: arms.length === 2 ? shareOf(run) : null,
  }
}

/** With two arms, the arms have the names by which trends compare runs. */
const roleOf = (arm: string, { experiment }: EndedRun): string => {
  if (Object.keys(experiment.arms).length > 2) return arm
  return arm === controlOf(experiment) ? 'control' : 'treatment'
}

const armsOf = (run: EndedRun) =>
  Object.entries(run.experiment.arms).map(([arm, set]) => {
    const { calls, failed, attempts, underWay, rejected, cells } = run.arms[arm]!
    const name = roleOf(arm, run)
    const good = calls - failed
    return {
      ...{ name, set, calls, good, wrong: null, rejected, unjudged: underWay, attempts },
      window: {
        phase: 'stage',
        stage: 0,
        arm: name,
        fromMs: 0,
        toMs: run.ranMs,
        calls,
        good,
        failed,
        wrong: null,
        cells: cells.map(([cell, count]): [number, number] => [cell, count]),
      },
    }
  })

const shareOf = ({ experiment }: EndedRun): number => {
  const [, treatment = 0] = [...splitOf(experiment)].find(([arm]) => arm !== controlOf(experiment)) ?? []
  return treatment * experiment.share
}

const statuses = {
  better: 'proven',
  no_difference_found: 'proven',
  worse: 'failed',
  inconclusive: 'not_measured',
  invalid: 'not_measured',
} as const satisfies Readonly<Record<VerdictResult, RunSummary['claims'][number]['status']>>

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null)

/** Returns the claim that a treatment is not worse than the control. Differences are treatment minus control. */
export const notWorse = (
  metric: string,
  [treatment, control]: readonly [string, string],
  { result, difference, low, high, units }: Pick<Verdict, 'result' | 'difference' | 'low' | 'high' | 'units'>,
): RunSummary['claims'][number] => ({
  text: `${metric} of ${treatment} is not worse than of ${control}`,
  value: finite(difference),
  low: finite(low),
  high: finite(high),
  n: units,
  status: statuses[result],
})

const claimsOf = ({ experiment, judgement }: EndedRun) =>
  Object.entries(judgement.verdicts).map(([arm, verdict]) => {
    const names = [armInWords(experiment, arm), armInWords(experiment, controlOf(experiment))] as const
    return notWorse(experiment.metric, names, verdict)
  })

/** A stopped run has fewer units than planned for this reason alone. */
function reasonsIn({ experiment, judgement, isStopped }: EndedRun): readonly Reason[] {
  if (isStopped || !Object.values(judgement.verdicts).some(({ result }) => result === 'invalid')) return []
  const fewest = Math.min(...Object.keys(experiment.arms).map((arm) => judgement.units[arm] ?? 0))
  return [fewest < experiment.minimumUnits ? 'below_floor' : 'unsound']
}

function faultOf({ name, type, fates }: HitFault): RunSummary['faults'][number] {
  const { masked, delayed, surfaced, escaped, not_reached: notReached } = fates
  const applied = masked + delayed + surfaced + escaped
  const counts = { applied, notApplicable: 0, notReached, masked, delayed, surfaced, escaped }
  return { name, type, planned: null, drawn: applied + notReached, ...counts }
}
