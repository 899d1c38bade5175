import type { HandIn } from '../../../evidence/hand-in.ts'
import { newRunId } from '../../../evidence/hand-in.ts'
import { hostFacts } from '../../../evidence/host.ts'
import { isStanding, LEAST_OVERLAP } from '../../../evidence/verdict.ts'
import { judgementByClaims } from '../../../evidence/verdict-by-claims.ts'
import type { Reason } from '../../../evidence/verdict-names.ts'
import { hashOf } from '../../../experiments/guarded/spec.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { version } from '../../../protocol/identity.ts'
import type { GatewayFacts } from '../../shared/gateway-facts.ts'
import { fittedName, fittedText } from '../../shared/summary-file.ts'
import type { Assertion } from './assertions.ts'
import { callsDuring, type Evidence, isGood, openings, recoveryOf } from './evidence.ts'
import type { FaultCounts } from './gateway.ts'
import type { Scenario } from './library.ts'
import { cellsOf } from './measures.ts'
import type { Checked, Result } from './result.ts'
import type { Injected, ScenarioRun } from './run.ts'

/** A run of a scenario with injected faults. */
export interface PlayedScenario {
  readonly scenario: Scenario
  readonly result: Result
  readonly assertions: readonly Assertion[]
  /** Undefined for a run that broke off: its figures are lost. */
  readonly run: ScenarioRun | undefined
  /** Calls a second of the run's own; undefined for a run that only observes. */
  readonly rate: number | undefined
  /** Called tools of hit servers, as `server/tool`. */
  readonly tools: readonly string[]
  readonly toolGlob: string | undefined
}

/** Most rows of each list in a summary. */
const MOST = 64

/** Returns the document by which a client hands in a run of a scenario. */
export function scenarioDocument(played: PlayedScenario, facts: GatewayFacts): HandIn {
  const { scenario, result, run, rate, toolGlob } = played
  const { startedAt, tookMs, durationMs, servers } = result
  const { name, description: _, expect: __, traffic: ___, duration: ____, ...does } = scenario
  const evidence = run?.evidence
  const load = { rate: rate ?? null, tool: toolGlob ?? null }
  const measured = {
    kind: 'scenario' as const,
    arms: [armOf(evidence)],
    faults: (run?.faults ?? []).slice(0, MOST).map(faultOf),
    claims: claimsOf(played).slice(0, MOST),
    state:
      run === undefined ? ('failed' as const) : run.isStopped ? ('stopped' as const) : ('completed' as const),
  }
  const targets = targetsOf(played).slice(0, MOST)
  const steadyMs = evidence && recoveryOf(evidence).steadyMs
  return {
    format: 1,
    id: newRunId('scenario', startedAt),
    name: fittedName(name),
    plan: hashOf({ scenario, durationMs, load, servers }),
    shape: hashOf({ does, durationMs, load }),
    at: startedAt,
    tookMs,
    version,
    environment: facts.environment,
    replicas: 1,
    hashes: {
      config: facts.config,
      policies: facts.policies,
      faults: hashOf(scenario.faults),
      targets: hashOf(targets),
      load: hashOf(load),
    },
    seed: run === undefined ? null : String(run.seed),
    host: hostFacts(),
    ...facts.linksOf(servers),
    targets,
    load: { model: rate === undefined ? 'real' : 'open', rate: rate ?? null, concurrency: null },
    ...measured,
    windows: evidence === undefined ? [] : [windowOf(evidence)],
    transitions: (evidence === undefined ? [] : openings(evidence))
      .flatMap(({ tool, at }) =>
        at === undefined
          ? []
          : [{ atMs: Math.max(0, at), layer: 'breaker', name: fittedName(tool), from: 'closed', to: 'open' }],
      )
      .slice(0, MOST),
    recoveries: recoveriesOf(evidence, steadyMs),
    estimates: [],
    rto: { promisedMs: scenario.assert.recovery?.steady ?? null, measuredMs: steadyMs ?? null },
    everyMs: null,
    reasons: [...reasonsOf(played, measured)],
    share: null,
  }
}

/** The tools of the run's own calls; without such calls, all tools of the hit servers. */
function targetsOf({ tools, result, toolGlob }: PlayedScenario): HandIn['targets'] {
  if (tools.length === 0) return result.servers.map((server) => ({ server, tool: '*', effect: 'unknown' }))
  // Without a glob, the run calls only tools that declare themselves read-only.
  const effect = toolGlob === undefined ? 'read_only' : 'unknown'
  return tools.map((key) => {
    const at = key.indexOf('/')
    return { server: key.slice(0, at), tool: fittedName(key.slice(at + 1)), effect }
  })
}

/** Calls at hit servers during the faults, with those without an end as open. */
function countsIn(evidence: Evidence) {
  const all = callsDuring(evidence)
  const ended = all.filter(({ endedAt }) => endedAt !== undefined)
  const good = ended.filter(isGood).length
  return { all, ended, good, open: all.length - ended.length }
}

/** Counts all calls at hit servers; without own calls, the calls that the gateway counted. */
function armOf(evidence: Evidence | undefined): HandIn['arms'][number] {
  const arm = { name: 'treatment', set: 'default', wrong: null }
  const none = { calls: 0, good: 0, rejected: 0, unjudged: 0, attempts: 0 }
  if (evidence === undefined) return { ...arm, ...none }
  const { counted } = evidence
  const rejected = Object.values(counted?.rejections ?? {}).reduce((sum, times) => sum + times, 0)
  const { ended, good, open } = countsIn(evidence)
  const calls = ended.length
  return { ...arm, calls, good, rejected, unjudged: open, attempts: counted?.attempts ?? calls }
}

function windowOf(evidence: Evidence): HandIn['windows'][number] {
  const { ended, good } = countsIn(evidence)
  return {
    phase: 'faults',
    stage: 0,
    arm: 'treatment',
    fromMs: 0,
    toMs: Math.max(0, evidence.faultsEndedAt),
    calls: ended.length,
    good,
    failed: ended.length - good,
    wrong: null,
    cells: cellsOf(ended),
  }
}

function faultOf({ name, counts }: Injected): HandIn['faults'][number] {
  const { type, injected, notApplicable, notReached, masked, delayed, surfaced, escaped } = counts ?? nothing
  const applied = Math.max(0, injected - notReached)
  return {
    ...{ name, type, planned: null, drawn: injected, applied, notApplicable, notReached },
    ...{ masked, delayed, surfaced, escaped },
  }
}

/** Counts of a fault that ended before the run read its counts. */
const nothing: Pick<
  FaultCounts,
  'type' | 'injected' | 'notApplicable' | 'notReached' | 'masked' | 'delayed' | 'surfaced' | 'escaped'
> = {
  type: 'unknown',
  injected: 0,
  notApplicable: 0,
  notReached: 0,
  masked: 0,
  delayed: 0,
  surfaced: 0,
  escaped: 0,
}

/** The assertions with a subject. A fact proves an assertion; a sample of calls needs an interval inside the bounds. */
function claimsOf({ assertions, result, run }: PlayedScenario): HandIn['claims'] {
  const evidence = run?.evidence
  if (evidence === undefined) return []
  const n = countsIn(evidence).all.length
  return result.checks.flatMap((check) => {
    if (check.verdict === 'skipped') return []
    const sampled = assertions.find(({ name }) => name === check.name)?.sampled
    const estimate = sampled?.estimate(evidence)
    const isProven = sampled === undefined || (estimate !== undefined && sampled.isProven(estimate))
    return [
      {
        text: fittedText(check.name),
        value: finite(estimate?.value),
        low: finite(estimate?.low),
        high: finite(estimate?.high),
        n: estimate?.n ?? n,
        status: statusOf(check, isProven),
      },
    ]
  })
}

const finite = (value: number | undefined) => (Number.isFinite(value) ? value! : null)

const statusOf = ({ verdict }: Checked, isProven: boolean) =>
  verdict === 'fail'
    ? ('failed' as const)
    : verdict === 'pass'
      ? isProven
        ? ('proven' as const)
        : ('held' as const)
      : ('not_measured' as const)

function recoveriesOf(evidence: Evidence | undefined, steadyMs: Millis | undefined): HandIn['recoveries'] {
  if (evidence?.calls === undefined) return []
  const watchedMs = Math.max(0, evidence.endedAt - evidence.faultsEndedAt)
  return [{ layer: 'calls', name: 'calls', ms: steadyMs ?? watchedMs, censored: steadyMs === undefined }]
}

/** Returns the reasons against a run that only its measurement shows. */
function reasonsOf(
  { scenario, assertions, result, run, rate }: PlayedScenario,
  measured: Pick<HandIn, 'kind' | 'arms' | 'faults' | 'claims' | 'state'>,
): readonly Reason[] {
  if (run === undefined) return []
  const sampled = assertions.flatMap((one) => one.sampled ?? [])
  const highest = highestErrorRatio(scenario)
  const found: Reason[] = []
  if (run.evidence?.calls !== undefined && !isOverlapping(run.evidence)) found.push('not_overlapping')
  // Only the run's own calls show that calls succeed before the faults.
  if (rate === undefined) found.push('unsteady_before')
  if (run.engineErrors > 0) found.push('engine_error')
  if (sampled.length > 0 && sampled.every(({ isLoose }) => isLoose(highest))) found.push('loose_tolerance')
  const { reasons } = judgementByClaims({ ...measured, reasons: found })
  const isExplained = reasons.some((reason) => reason !== 'undecided' && reason !== 'below_floor')
  return result.flaws.length > 0 && !isExplained ? [...found, 'unsound'] : found
}

/** Whether calls met the faults in most seconds. */
function isOverlapping(evidence: Evidence): boolean {
  const seconds = Math.ceil(evidence.faultsEndedAt / 1_000)
  const met = new Set<number>()
  for (const { startedAt, endedAt = evidence.faultsEndedAt } of callsDuring(evidence))
    for (let at = Math.floor(startedAt / 1_000); at * 1_000 <= endedAt && at < seconds; at++) met.add(at)
  return seconds > 0 && met.size >= LEAST_OVERLAP * seconds
}

/** Returns the largest share of calls that the faults can make fail, if each hit call fails. */
function highestErrorRatio({ faults }: Scenario): number {
  const rates = faults.map(({ type, rate }) =>
    isStanding(String(type)) || typeof rate !== 'number' ? 1 : rate,
  )
  return 1 - rates.reduce((left, rate) => left * (1 - rate), 1)
}
