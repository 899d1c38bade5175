import type { Call, Outcome } from '../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { DEFAULT_SET } from '../mesh/settings.ts'
import type { ArmSettings } from '../mesh/settings.ts'
import { canonicalJson } from '../protocol/canonical-json.ts'
import { taskOf } from '../protocol/task.ts'
import { assigner } from './assignment.ts'
import { armsOf, overlap } from './capacity.ts'
import { type Judgement, judge } from './judge.ts'
import { endIn, Samples, type UnitSample } from './samples.ts'
import type { Experiment } from './schema.ts'
import type { Verdict } from './statistics/verdict.ts'

/** As much of a config as experiments go by. */
export interface ExperimentConfig {
  readonly experiments: readonly Experiment[]
  readonly policies: {
    readonly defaults: object
    readonly overrides: readonly object[]
    readonly sets: Readonly<Record<string, object>>
  }
  readonly mcpServers: Readonly<Record<string, unknown>>
}

/** One look at an experiment while it ran. */
export interface Look {
  /** How long it had run, in milliseconds. */
  readonly atMs: Millis
  /** By arm: those that are over. */
  readonly units: Readonly<Record<string, number>>
  /**
   * Of the metric that decides: treatment minus control, with its confidence sequence; not finite before there is one. With
   * several treatments that of the one which decided at this look.
   */
  readonly difference: number
  readonly low: number
  readonly high: number
  /** The same of each treatment. */
  readonly byTreatment: Readonly<Record<string, Pick<Look, 'difference' | 'low' | 'high'>>>
}

/** One run of an experiment. */
export interface Run {
  readonly experiment: Experiment
  /** Milliseconds since the Unix epoch. */
  readonly startedAtWall: number
  /** On the monotonic clock. */
  readonly startedAt: Millis
  readonly samples: Samples
  readonly looks: readonly Look[]
  /** By the latest look. */
  readonly judgement: Judgement
  /** Undefined while it runs. */
  readonly end: { readonly at: Millis; readonly atWall: number; readonly reason: string } | undefined
}

/** An experiment of the config, and its run of now, or else the last one that ended. */
export interface Listed {
  readonly experiment: Experiment
  readonly run: Run | undefined
}

interface OpenRun extends Run {
  /** All that was said of the experiment, but for whether it is active. */
  readonly settings: string
  /** What its arms go by, by policy set. */
  readonly sets: ReadonlyMap<string, string>
  readonly looks: Look[]
  judgement: Judgement
  end: Run['end']
}

export interface ExperimentsParts {
  readonly clock: Clock
  /** How long no call of a task may have ended for it to be over, in milliseconds. */
  readonly quiet: () => Millis
  /** Puts the config that is in force into force again. Throws when it does not compile. */
  readonly refresh: () => void
  /** Hears what an operator will want to read about. Must not throw. */
  readonly emit: (event: ExperimentEvent) => void
}

export type ExperimentEvent =
  | { readonly type: 'started'; readonly name: string }
  | { readonly type: 'ended'; readonly name: string; readonly reason: string; readonly sentence: string }

/** Whether something was done, or why not. */
export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }

/** Most units of all runs together, those that have ended included; what comes on top is counted, and takes no part in a verdict. */
const MAX_UNITS = 50_000

/** Between two looks at the experiments that run, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** How many times as long as a look took there is none after it: looks never take more of the time than one part in so many. */
const PAUSES = 50

/** Most looks of one run that are kept; past it every second one is left out. */
const MAX_LOOKS = 240

/** What a config makes of an experiment. */
type Step =
  | { readonly experiment: Experiment; readonly runs: true; readonly begins: boolean; readonly ends?: string }
  | { readonly experiment: Experiment; readonly runs: false; readonly ends?: string }

/**
 * The experiments: which of them run, which arm each call is in, and what has come of it. Outlives all generations. A
 * generation is compiled with the arms that are to run under its config, and they run when it is in force.
 */
export class Experiments {
  readonly #parts: ExperimentsParts
  readonly #runs = new Map<string, OpenRun>()
  /** The last run of each that has ended. */
  readonly #ended = new Map<string, OpenRun>()
  /** Those that an operator has just started. */
  readonly #started = new Set<string>()
  #config: ExperimentConfig = {
    experiments: [],
    policies: { defaults: {}, overrides: [], sets: {} },
    mcpServers: {},
  }
  #cancelLook: Cancel | undefined
  #pauseMs: Millis = LOOK_MS
  /** How many units there may be, in all runs together. */
  readonly #room = { left: MAX_UNITS }

  constructor(parts: ExperimentsParts) {
    this.#parts = parts
  }

  /** The arms that are to be there under a config, for its generation. Changes nothing. */
  armsIn(config: ExperimentConfig): Record<string, ArmSettings> {
    return armsOf(this.#running(config), Object.keys(config.mcpServers))
  }

  /**
   * Says of each call in which arm it is, by its record, before anything else sees it: for the generation of a config.
   * Undefined when no experiment runs there.
   */
  assignIn(config: ExperimentConfig): ((call: Call) => void) | undefined {
    const running = this.#running(config).map((experiment) => ({
      name: experiment.name,
      assign: assigner(experiment),
    }))
    if (running.length === 0) return undefined
    return (call) => {
      call.record.intent ??= taskOf(call)
      for (const { name, assign } of running) {
        const found = assign(call)
        if (found === undefined) continue
        const samples = this.#runs.get(name)?.samples
        if (typeof found === 'string') return samples?.leftOut(found)
        call.record.arm = found.arm
        call.record.unit = samples?.begin(found.unit, found.name, found.isFallback)
        return
      }
    }
  }

  /** A config is in force from now on. */
  follow(config: ExperimentConfig): void {
    const steps = this.#steps(config)
    const there = new Set(config.experiments.map(({ name }) => name))
    for (const [name, run] of this.#runs)
      if (!there.has(name)) this.#close(run, 'it was taken out of the config')
    for (const [name, run] of this.#ended) {
      if (there.has(name)) continue
      run.samples.clear()
      this.#ended.delete(name)
    }
    this.#config = config
    for (const step of steps) {
      const run = this.#runs.get(step.experiment.name)
      if (run !== undefined && step.ends !== undefined) this.#close(run, step.ends)
      if (step.runs && step.begins) this.#open(step.experiment, config)
    }
    this.#started.clear()
    this.#look()
  }

  /** An operator starts an experiment: it begins anew. */
  start(name: string): Done {
    const experiment = this.#config.experiments.find((one) => one.name === name)
    if (experiment === undefined) return { ok: false, why: `there is no experiment "${name}"` }
    if (this.#runs.has(name)) return { ok: false, why: `experiment "${name}" runs already` }
    const servers = Object.keys(this.#config.mcpServers)
    const other = [...this.#runs.values()].find((run) => overlap(run.experiment, experiment, servers))
    if (other !== undefined)
      return {
        ok: false,
        why: `experiment "${other.experiment.name}" runs, and takes calls that this one would take`,
      }
    this.#started.add(name)
    try {
      this.#parts.refresh()
      return { ok: true }
    } finally {
      this.#started.delete(name)
    }
  }

  /** An operator stops an experiment. */
  stop(name: string): Done {
    const run = this.#runs.get(name)
    if (run === undefined) {
      const isKnown = this.#config.experiments.some((one) => one.name === name)
      return {
        ok: false,
        why: isKnown ? `experiment "${name}" does not run` : `there is no experiment "${name}"`,
      }
    }
    this.#finish(run, 'it was stopped by hand')
    return { ok: true }
  }

  /** A call that was in an arm has ended. */
  end(call: Call, outcome: Outcome): void {
    const { arm, fates, unit } = call.record
    const sample = unit as UnitSample | undefined
    const run = this.#runs.get(arm.slice(0, arm.indexOf('/')))
    // What was sampled of a run that has ended stays as it was.
    if (sample === undefined || run === undefined) return
    endIn(sample, call, outcome, this.#parts.clock.now())
    if (fates !== undefined) run.samples.noteFates(sample.arm, call)
  }

  /** Somebody reports how a task ended. */
  report({ source, tenant, id, arm }: ReportedTask, outcome: 'succeeded' | 'failed'): void {
    const at = arm.indexOf('/')
    this.#runs.get(arm.slice(0, at))?.samples.report(`${source} ${tenant}\n${id}`, arm.slice(at + 1), outcome)
  }

  /** All experiments of the config, in its order, each with its run of now, or else the last one that ended. */
  list(): readonly Listed[] {
    return this.#config.experiments.map((experiment) => ({ experiment, run: this.#runOf(experiment.name) }))
  }

  /** The same, with what was judged at the latest look: for whoever asks often. */
  runs(): readonly Listed[] {
    return this.#config.experiments.map((experiment) => {
      const { name } = experiment
      return { experiment, run: this.#runs.get(name) ?? this.#ended.get(name) }
    })
  }

  /** One of them by its name; undefined when there is none. */
  get(name: string): Listed | undefined {
    return this.list().find(({ experiment }) => experiment.name === name)
  }

  /** Whether a run goes on. */
  isRunning(name: string): boolean {
    return this.#runs.has(name)
  }

  /** Looks at nothing any more. */
  close(): void {
    this.#cancelLook?.()
    this.#cancelLook = undefined
  }

  #runOf(name: string): OpenRun | undefined {
    const run = this.#runs.get(name)
    if (run !== undefined) this.#judge(run)
    return run ?? this.#ended.get(name)
  }

  #running(config: ExperimentConfig): Experiment[] {
    return this.#steps(config).flatMap((step) => (step.runs ? step.experiment : []))
  }

  /** One that would take calls of another one that runs does not begin. */
  #steps(config: ExperimentConfig): Step[] {
    const servers = Object.keys(config.mcpServers)
    const steps = config.experiments.map((experiment) => this.#stepOf(experiment, config))
    const run = steps.flatMap((step) => (step.runs && !step.begins ? step.experiment : []))
    return steps.map((step) => {
      if (!step.runs || !step.begins) return step
      const { experiment, ends } = step
      if (run.some((other) => overlap(other, experiment, servers)))
        return { experiment, runs: false, ...(ends !== undefined && { ends }) }
      run.push(experiment)
      return step
    })
  }

  #stepOf(experiment: Experiment, config: ExperimentConfig): Step {
    const { name, active } = experiment
    const run = this.#runs.get(name)
    const settings = settingsOf(experiment)
    if (run === undefined) {
      // One that has ended is started again by hand, or by other settings.
      const begins = this.#started.has(name) || (active && this.#ended.get(name)?.settings !== settings)
      return begins ? { experiment, runs: true, begins } : { experiment, runs: false }
    }
    if (run.settings !== settings)
      return active
        ? { experiment, runs: true, begins: true, ends: 'its settings changed' }
        : { experiment, runs: false, ends: 'its settings changed' }
    const before = this.#config.experiments.find((one) => one.name === name)
    if (before?.active === true && !active) return { experiment, runs: false, ends: '"active" is false now' }
    const changed = changedSet(run.sets, setsOf(experiment, config))
    if (changed !== undefined) return { experiment, runs: false, ends: `the policy set "${changed}" changed` }
    return { experiment, runs: true, begins: false }
  }

  #open(experiment: Experiment, config: ExperimentConfig): void {
    const { clock, emit } = this.#parts
    this.#ended.get(experiment.name)?.samples.clear()
    // What others have found stays; what they were sampled from gives way to a run that needs the room.
    if (this.#room.left < MAX_UNITS / 2) for (const { samples } of this.#ended.values()) samples.clear()
    const samples = new Samples(this.#room)
    const run: OpenRun = {
      experiment,
      startedAtWall: clock.wall(),
      startedAt: clock.now(),
      samples,
      looks: [],
      judgement: judge(experiment, [], { isOver: false }),
      end: undefined,
      settings: settingsOf(experiment),
      sets: setsOf(experiment, config),
    }
    this.#ended.delete(experiment.name)
    this.#runs.set(experiment.name, run)
    emit({ type: 'started', name: experiment.name })
  }

  /** A run is over, and its config goes on without it. `isJudged`: what ended it is its verdict. */
  #close(run: OpenRun, reason: string, isJudged = false): void {
    const { clock, emit } = this.#parts
    const { name } = run.experiment
    if (!isJudged) this.#judge(run, true)
    run.end = { at: clock.now(), atWall: clock.wall(), reason }
    this.#runs.delete(name)
    this.#ended.set(name, run)
    emit({ type: 'ended', name, reason, sentence: run.judgement.verdict.sentence })
  }

  /** The same, and calls take the usual way again. */
  #finish(run: OpenRun, reason: string, isJudged = false): void {
    this.#close(run, reason, isJudged)
    this.#parts.refresh()
  }

  /** A look that is to come stays where it is: configs that follow one another must not put it off. */
  #look(): void {
    if (this.#runs.size === 0) this.close()
    if (this.#runs.size === 0 || this.#cancelLook !== undefined) return
    this.#cancelLook = this.#parts.clock.after(this.#pauseMs, () => {
      this.#cancelLook = undefined
      const { clock } = this.#parts
      const begun = clock.now()
      for (const [name, run] of [...this.#runs]) if (this.#runs.get(name) === run) this.#lookAt(run)
      this.#pauseMs = Math.max(LOOK_MS, (clock.now() - begun) * PAUSES)
      this.#look()
    })
  }

  #lookAt(run: OpenRun): void {
    const ranMs = this.#parts.clock.now() - run.startedAt
    const isOver = ranMs >= run.experiment.longest
    this.#judge(run, isOver)
    run.looks.push(lookOf(run.judgement, ranMs))
    if (run.looks.length > MAX_LOOKS)
      run.looks.splice(0, run.looks.length, ...run.looks.filter((_, at) => at % 2 === 1))
    const { harm, ends } = run.judgement.verdict
    if (harm) this.#finish(run, 'an arm did harm', true)
    else if (isOver) this.#finish(run, 'its longest time was over', true)
    else if (ends) this.#finish(run, 'its verdict was found', true)
  }

  #judge(run: OpenRun, isOver = false): void {
    const { clock, quiet } = this.#parts
    const { assignBy } = run.experiment
    // Sessions and tenants may never fall silent: they are judged as they are.
    const waits = !isOver && (assignBy === 'intent' || assignBy === 'agent')
    const units = waits ? run.samples.complete(clock.now(), quiet()) : run.samples.idle()
    run.judgement = judge(run.experiment, units, { isOver })
  }
}

function lookOf({ verdict, verdicts, units }: Judgement, atMs: Millis): Look {
  const of = ({ difference, low, high }: Verdict) => ({ difference, low, high })
  const byTreatment = Object.fromEntries(Object.entries(verdicts).map(([arm, one]) => [arm, of(one)]))
  return { atMs, units, ...of(verdict), byTreatment }
}

/** A task that somebody has reported on. */
export interface ReportedTask {
  readonly source: string
  readonly tenant: string
  readonly id: string
  /** As calls of it have it; empty for none. */
  readonly arm: string
}

/** What was said of an experiment, but for whether it is active. */
function settingsOf({ active: _, ...settings }: Experiment): string {
  return canonicalJson(settings) ?? ''
}

/** By the name of each policy set of an experiment, what calls go by in it. */
function setsOf({ arms }: Experiment, { policies }: ExperimentConfig): ReadonlyMap<string, string> {
  const { defaults, overrides, sets } = policies
  return new Map(
    Object.values(arms).map((set) => {
      const own = set === DEFAULT_SET ? {} : sets[set]
      return [set, canonicalJson({ defaults, overrides, own }) ?? '']
    }),
  )
}

/** The first set that is another one now. */
function changedSet(
  before: ReadonlyMap<string, string>,
  now: ReadonlyMap<string, string>,
): string | undefined {
  for (const [set, text] of now) if (before.get(set) !== text) return set
  return undefined
}
