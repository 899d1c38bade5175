import { DEFAULT_SET, type MeshConfig, type PolicySettings } from '../mesh/settings.ts'
import { canonicalJson } from '../protocol/canonical-json.ts'
import { takesServer, meet, overlap, type Portioned, portionOf, TOGETHER } from './capacity.ts'
import type { Experiment } from './schema.ts'

export interface ExperimentConfig {
  readonly experiments: readonly Experiment[]
  readonly policies: Pick<MeshConfig, 'defaults' | 'overrides'> & {
    readonly sets: Readonly<Record<string, PolicySettings>>
  }
  readonly mcpServers: Readonly<Record<string, unknown>>
}

/** A run in progress, with the settings and policy sets the run depends on. */
export interface Running extends Portioned {
  /** See `settingsOf`. */
  readonly settings: string
  /** See `setsOf`. */
  readonly sets: ReadonlyMap<string, string>
}

/** The state of all experiments when a config comes into force. */
export interface Situation {
  /** Current runs, by name. */
  readonly running: ReadonlyMap<string, Running>
  /** Settings of each experiment's last ended run, by name. */
  readonly ended: ReadonlyMap<string, Pick<Running, 'settings'>>
  /** The names of experiments an operator has just started. */
  readonly started: ReadonlySet<string>
  /** The guarded run, or an empty list without a guarded run. No comparison may take calls of a guarded run. */
  readonly taken: readonly Experiment[]
  readonly before: readonly Experiment[]
}

export type Step =
  /** The experiment runs. `begins`: its run begins now. */
  | (Portioned & { readonly runs: true; readonly begins: boolean })
  | {
      readonly experiment: Experiment
      readonly runs: false
      /** Why the run ends now. With `beginsNext`, a new run begins when the config is applied again. */
      readonly ends?: string
      readonly beginsNext?: boolean
      /** Name of the experiment that blocks this experiment. */
      readonly waitsFor?: string
    }

/**
 * Returns a step for each experiment of a config, in the config's order: whether the experiment runs, waits or ends.
 * Running experiments keep their portions of servers: another portion would change the measurement. So an experiment
 * that would meet a running experiment at a server waits. Experiments that begin together share their servers.
 */
export function agendaFor(config: ExperimentConfig, situation: Situation): Step[] {
  const servers = Object.keys(config.mcpServers)
  const kept: Portioned[] = []
  const steps = config.experiments.map((experiment): Step | 'wanted' => {
    const run = situation.running.get(experiment.name)
    if (run === undefined) return isWanted(experiment, situation) ? 'wanted' : { experiment, runs: false }
    const ends = whyEnds(run, experiment, config, situation)
    if (ends !== undefined) return { experiment, runs: false, ...ends }
    const rival = crowding(experiment, run.portion, kept, servers)
    if (rival !== undefined)
      return { experiment, runs: false, ends: `a new server also matches "${rival.name}"` }
    kept.push({ experiment, portion: run.portion })
    return { experiment, runs: true, begins: false, portion: run.portion }
  })
  const running = [...situation.taken, ...kept.map(({ experiment }) => experiment)]
  const beginning: Experiment[] = []
  const rivals = new Map<Experiment, Experiment>()
  for (const [at, step] of steps.entries()) {
    const experiment = config.experiments[at]!
    if (step !== 'wanted') continue
    const rival =
      running.find((other) => meet(other, experiment, servers)) ??
      beginning.find((other) => overlap(other, experiment, servers))
    if (rival === undefined) beginning.push(experiment)
    else rivals.set(experiment, rival)
  }
  return steps.map((step, at): Step => {
    if (step !== 'wanted') return step
    const experiment = config.experiments[at]!
    const rival = rivals.get(experiment)
    if (rival !== undefined) return { experiment, runs: false, waitsFor: rival.name }
    return { experiment, runs: true, begins: true, portion: portionOf(experiment, beginning, servers) }
  })
}

/**
 * Returns true when an experiment should run. An ended experiment runs again only after an operator's start, or with
 * other settings.
 */
function isWanted(experiment: Experiment, { started, ended }: Situation): boolean {
  const { name, active } = experiment
  return started.has(name) || (active && ended.get(name)?.settings !== settingsOf(experiment))
}

function whyEnds(
  run: Running,
  experiment: Experiment,
  config: ExperimentConfig,
  { before }: Situation,
): { readonly ends: string; readonly beginsNext?: boolean } | undefined {
  const { name, active } = experiment
  if (run.settings !== settingsOf(experiment)) return { ends: 'its settings changed', beginsNext: active }
  const wasActive = before.find((one) => one.name === name)?.active === true
  if (wasActive && !active) return { ends: '"active" is false now' }
  const changed = changedSet(run.sets, setsOf(experiment, config))
  return changed === undefined ? undefined : { ends: `the policy set "${changed}" changed` }
}

/**
 * Returns another experiment at a server where the portions of all experiments together exceed `TOGETHER`; undefined
 * when no server has too many.
 */
function crowding(
  experiment: Experiment,
  portion: number,
  others: readonly Portioned[],
  servers: readonly string[],
): Experiment | undefined {
  for (const server of servers.filter(takesServer(experiment))) {
    const there = others.filter((other) => takesServer(other.experiment)(server))
    const sum = there.reduce((total, other) => total + other.portion, portion)
    if (there.length > 0 && sum > TOGETHER + HAIR) return there[0]!.experiment
  }
  return undefined
}

/** Tolerance for sums of portions, which are not exact in binary. */
const HAIR = 1e-9

/** Returns the settings of an experiment as canonical JSON, without `active`. */
export function settingsOf({ active: _, ...settings }: Experiment): string {
  return canonicalJson(settings) ?? ''
}

/** Returns the effective policies of each policy set of an experiment, by set name. */
export function setsOf({ arms }: Experiment, { policies }: ExperimentConfig): ReadonlyMap<string, string> {
  const { defaults, overrides, sets } = policies
  return new Map(
    Object.values(arms).map((set) => {
      const own = set === DEFAULT_SET ? {} : sets[set]
      return [set, canonicalJson({ defaults, overrides, own }) ?? '']
    }),
  )
}

function changedSet(
  before: ReadonlyMap<string, string>,
  now: ReadonlyMap<string, string>,
): string | undefined {
  for (const [set, text] of now) if (before.get(set) !== text) return set
  return undefined
}
