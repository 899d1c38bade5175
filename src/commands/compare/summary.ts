import { type HandIn, newRunId } from '../../evidence/hand-in.ts'
import { hostFacts } from '../../evidence/host.ts'
import { notWorse } from '../../evidence/summary-of-comparison.ts'
import { judgementByClaims } from '../../evidence/verdict-by-claims.ts'
import type { Reason } from '../../evidence/verdict-names.ts'
import { cellOf } from '../../experiments/guarded/meter.ts'
import { hashOf } from '../../experiments/guarded/spec.ts'
import type { PairedReport, TwinPair } from '../../experiments/paired.ts'
import { exposedName, type KnownTools, serversOf, type Workload } from '../../load/workload.ts'
import type { Millis } from '../../mesh/clock.ts'
import { version } from '../../protocol/identity.ts'
import type { GatewayFacts } from '../shared/gateway-facts.ts'
import { fittedName, fittedText } from '../shared/summary-file.ts'
import type { ArmedFault, Plan } from './faults.ts'
import type { Sets } from './venue.ts'

/** A paired comparison that was played, to its end or not. */
export interface PlayedPairs {
  readonly report: PairedReport
  readonly workload: Workload
  readonly plan: Plan | undefined
  readonly tools: KnownTools
  readonly both: Sets
  readonly tasks: number
  readonly seed: number
  readonly concurrency: number
  readonly counted: readonly ArmedFault[]
  readonly isStopped: boolean
  readonly engineErrors: number
  /** Start, in milliseconds since the Unix epoch. */
  readonly startedAt: Millis
}

const MOST = 64

/** Returns the document by which a client hands in a paired comparison. */
export function pairedDocument(played: PlayedPairs, facts: GatewayFacts): HandIn {
  const { report, workload, plan, tools, both, tasks, seed, concurrency, counted, startedAt } = played
  const servers = [...serversOf(workload, tools)].sort()
  const targets = targetsOf(workload, tools)
  const load = { workload, tasks, concurrency }
  const faults = counted.map(({ name, type, config }) => ({ name, type, config }))
  const sides = ['control', 'treatment'] as const
  const measured = {
    kind: 'paired' as const,
    arms: sides.map((side) => armOf(side, fittedName(both[side]), report.twins)),
    faults: counted.slice(0, MOST).map(faultOf),
    claims: [claimOf(report)],
    state: played.isStopped ? ('stopped' as const) : ('completed' as const),
  }
  return {
    format: 1,
    id: newRunId('paired', startedAt),
    name: fittedName(`${workload.name}: ${both.treatment} against ${both.control}`),
    plan: hashOf({ load, both, plan: plan ?? null, seed }),
    shape: hashOf({ workload: workload.name, both, faults }),
    at: startedAt,
    tookMs: report.ranMs,
    version,
    environment: facts.environment,
    replicas: 1,
    hashes: {
      config: facts.config,
      policies: facts.policies,
      faults: hashOf(faults),
      targets: hashOf(targets),
      load: hashOf(load),
    },
    seed: String(seed),
    host: hostFacts(),
    ...facts.linksOf(servers),
    targets,
    load: {
      model: workload.arrivals === undefined ? 'closed' : 'open',
      rate:
        workload.arrivals === undefined ? null : (1_000 * workload.arrivals.calls) / workload.arrivals.perMs,
      concurrency,
    },
    ...measured,
    windows: sides.map((side) => windowOf(side, report)),
    transitions: [],
    recoveries: [],
    estimates: [],
    rto: { promisedMs: null, measuredMs: null },
    everyMs: null,
    reasons: [...reasonsOf(played, measured)],
    share: 0.5,
  }
}

/** The tools of all steps. */
function targetsOf(workload: Workload, tools: KnownTools): HandIn['targets'] {
  const steps = workload.tasks.flatMap((task) => task.steps)
  const keys = new Map(
    steps.map((step) => {
      const exposed = exposedName(step, tools)
      const server = step.server ?? serverOf(typeof exposed === 'string' ? exposed : step.tool, tools)
      return [`${server}/${step.tool}`, { server, tool: fittedName(step.tool), effect: 'unknown' }]
    }),
  )
  return [...keys.values()].slice(0, MOST)
}

/** Returns the server of a tool by its name on `/mcp`. */
const serverOf = (exposed: string, { servers }: KnownTools): string =>
  [...servers].find(([, names]) => [...names.values()].includes(exposed))?.[0] ?? 'unknown'

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

function armOf(
  side: 'control' | 'treatment',
  set: string,
  twins: readonly TwinPair[],
): HandIn['arms'][number] {
  const own = twins.map((pair) => pair[side])
  return {
    name: side,
    set,
    calls: sum(own.map(({ calls }) => calls)),
    good: sum(own.map(({ right }) => right)),
    wrong: null,
    rejected: 0,
    unjudged: 0,
    // The gateway's count of a task may be missing.
    attempts: sum(own.map(({ attempts }) => (Number.isFinite(attempts) ? attempts : 0))),
  }
}

function windowOf(side: 'control' | 'treatment', { twins, ranMs }: PairedReport): HandIn['windows'][number] {
  const cells = new Map<number, number>()
  for (const { [side]: twin } of twins)
    for (const ms of twin.durations) cells.set(cellOf(ms), (cells.get(cellOf(ms)) ?? 0) + 1)
  const { calls, good } = armOf(side, '', twins)
  return {
    ...{ phase: 'stage', stage: 0, arm: side, fromMs: 0, toMs: ranMs },
    ...{ calls, good, failed: calls - good, wrong: null },
    cells: [...cells].sort(([a], [b]) => a - b),
  }
}

function faultOf(fault: ArmedFault): HandIn['faults'][number] {
  const { name, type, injected, notApplicable, notReached, masked, delayed, surfaced, escaped } = fault
  return {
    ...{ name, type, planned: null, drawn: injected, applied: Math.max(0, injected - notReached) },
    ...{ notApplicable, notReached, masked, delayed, surfaced, escaped },
  }
}

/** Differences are in the share of tasks that succeed, over the pairs. */
function claimOf({ control, treatment, result, difference, twins }: PairedReport): HandIn['claims'][number] {
  const { estimate, low, high } = difference
  const verdict = { result, difference: estimate, low, high, units: twins.length }
  const claim = notWorse('task_success', [treatment, control], verdict)
  return { ...claim, text: fittedText(claim.text) }
}

/** Returns the reasons against a run that only its measurement shows. */
function reasonsOf(
  { report, engineErrors }: PlayedPairs,
  measured: Pick<HandIn, 'kind' | 'arms' | 'faults' | 'claims' | 'state'>,
): readonly Reason[] {
  const found: Reason[] = engineErrors > 0 ? ['engine_error'] : []
  const { reasons } = judgementByClaims({ ...measured, reasons: found })
  const isExplained = reasons.some((reason) => reason !== 'undecided' && reason !== 'below_floor')
  return report.flaws.length > 0 && !isExplained ? [...found, 'unsound'] : found
}
