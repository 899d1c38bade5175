import { nextTurn, type Millis } from '../../mesh/clock.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import type { Seed } from '../../mesh/keyed-random.ts'
import { thorough } from '../agents.ts'
import type { PolicyChoice } from '../policy-choices.ts'
import { simulated } from '../run.ts'
import type { Scene } from '../scene.ts'
import { faultsOf, type Genome, keyOf } from './plan-space.ts'
import { type Measured, measuredBy, OUTAGE, type Slo, slis } from './slo.ts'

/**
 * Outcome of an individual. `invalid`: the plan is not allowed. `inapplicable`: every fault drawn for a call was
 * refused or not applicable there. `unreachable`: no fault was drawn for any call.
 */
export type Evaluation =
  | { readonly status: 'invalid'; readonly why: string }
  | { readonly status: 'inapplicable' | 'unreachable' }
  | ({ readonly status: 'measured' } & Measured)

/** The parameters of a run, except its faults and seed. */
export interface Setting {
  readonly slo: Slo
  readonly scene: Scene
  readonly choice: PolicyChoice
  readonly tasks: number
  readonly concurrency: number
}

interface Ran {
  readonly value: number
  readonly p95Ms: Millis
  readonly tookMs: Millis
  /** Number of injections into calls, and number of calls for which a drawn fault was refused or not applicable. */
  readonly injected: number
  readonly inapplicable: number
}

/** Runs a setting on a new clock, with these faults and a seed for all draws. */
export async function run(setting: Setting, faults: readonly Fault[], seed: Seed): Promise<Ran> {
  const { slo, scene, choice, tasks, concurrency } = setting
  const latencies: Millis[] = []
  const { tally, gateway, tookMs } = await simulated({
    seed,
    servers: scene.servers,
    choice,
    faults,
    workload: { tasks, stepsOf: scene.stepsOf, agent: thorough, concurrency },
    onCall: (_, __, ms) => void latencies.push(ms),
  })
  const counts = gateway.faults.map((fault) => fault.counts)
  const refused = gateway.journal.decisions().filter(({ because }) => because === 'refused').length
  return {
    value: slis[slo.sli](tally, latencies),
    p95Ms: slis.p95(tally, latencies),
    tookMs,
    injected: counts.reduce((sum, { injected }) => sum + injected, 0),
    inapplicable: counts.reduce((sum, { notApplicable }) => sum + notApplicable, refused),
  }
}

/**
 * Measures an individual under all seeds. Unlike `Evaluator`, does not stop early when the individual is far beyond the
 * objective. Throws when the plan is not allowed.
 */
export async function measure(setting: Setting, genome: Genome, seeds: readonly Seed[]): Promise<Measured> {
  const faults = faultsOf(genome)
  if (typeof faults === 'string') throw new Error(`the plan is not allowed: ${faults}`)
  const values: number[] = []
  for (const seed of seeds) {
    await nextTurn()
    values.push((await run(setting, faults, seed)).value)
  }
  return measuredBy(setting.slo, values)
}

export interface Baseline extends Measured {
  readonly spanMs: Millis
  /** The 95th percentile of call durations in the slowest run. */
  readonly usualMs: Millis
}

export async function baselineOf(setting: Setting, seeds: readonly Seed[]): Promise<Baseline> {
  const ran: Ran[] = []
  for (const seed of seeds) ran.push(await run(setting, [], seed))
  const measured = measuredBy(
    setting.slo,
    ran.map(({ value }) => value),
  )
  return {
    ...measured,
    spanMs: Math.max(...ran.map(({ tookMs }) => tookMs)),
    usualMs: Math.max(...ran.map(({ p95Ms }) => p95Ms)),
  }
}

export interface Evaluated {
  readonly genome: Genome
  readonly evaluation: Evaluation
}

/** Measures individuals in a setting under the same seeds, and equal individuals only once. */
export class Evaluator {
  readonly setting: Setting
  readonly seeds: readonly Seed[]
  hits = 0
  readonly #known = new Map<string, Evaluated>()

  constructor(setting: Setting, seeds: readonly Seed[]) {
    this.setting = setting
    this.seeds = seeds
  }

  get known(): readonly Evaluated[] {
    return [...this.#known.values()]
  }

  /** Adds evaluations from an evaluator of the same setting and seeds. */
  restore(known: readonly Evaluated[], hits: number): void {
    for (const evaluated of known) this.#known.set(keyOf(evaluated.genome), evaluated)
    this.hits = hits
  }

  async evaluate(genome: Genome): Promise<Evaluation> {
    const key = keyOf(genome)
    const known = this.#known.get(key)
    if (known !== undefined) {
      this.hits++
      return known.evaluation
    }
    const evaluation = await this.#measure(genome)
    this.#known.set(key, { genome, evaluation })
    return evaluation
  }

  async #measure(genome: Genome): Promise<Evaluation> {
    const faults = faultsOf(genome)
    if (typeof faults === 'string') return { status: 'invalid', why: faults }
    const values: number[] = []
    let [injected, inapplicable] = [0, 0]
    for (const seed of this.seeds) {
      // Gives way to the event loop, so that progress can be shown.
      await nextTurn()
      const ran = await run(this.setting, faults, seed)
      values.push(ran.value)
      injected += ran.injected
      inapplicable += ran.inapplicable
      // Skips the other seeds when the individual is this far beyond the objective.
      if (measuredBy(this.setting.slo, values).excess > 2 * OUTAGE) break
    }
    if (injected > 0) return { status: 'measured', ...measuredBy(this.setting.slo, values) }
    return { status: inapplicable > 0 ? 'inapplicable' : 'unreachable' }
  }
}
