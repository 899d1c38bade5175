import { faultFates } from '../mesh/injected.ts'
import type { Call, CallRecord, Outcome } from '../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import type { ArmSettings } from '../mesh/settings.ts'
import { taskOf } from '../protocol/task.ts'
import {
  agendaFor,
  type ExperimentConfig,
  type Running,
  setsOf,
  settingsOf,
  type Situation,
} from './agenda.ts'
import { assigner } from './assignment.ts'
import { armsOf, meet, type Portioned } from './capacity.ts'
import { judgeApart } from './judge-thread.ts'
import { type Judged, type Judgement, judge, judgeUnits, type KnownUnits, takesLong } from './judge.ts'
import {
  type ArmFigures,
  endIn,
  type HitFault,
  measuredUnit,
  Room,
  Samples,
  taskUnit,
  type UnitSample,
} from './samples.ts'
import { armNames, type Experiment } from './schema.ts'
import type { Verdict } from './statistics/verdict.ts'

export interface Look {
  /** Run time so far, in milliseconds. */
  readonly atMs: Millis
  /** Finished units, by arm. */
  readonly units: Readonly<Record<string, number>>
  /**
   * Treatment minus control in the deciding metric, with its confidence sequence; not finite before a sequence exists.
   * With several treatments: of the treatment that decided at this look.
   */
  readonly difference: number
  readonly low: number
  readonly high: number
  readonly byTreatment: Readonly<Record<string, Pick<Look, 'difference' | 'low' | 'high'>>>
  /** Number of units with an assumed end; the figures then assume the least favourable ends. Default: 0. */
  readonly assumed?: number
}

export interface Run {
  /** The experiment as configured at the start of the run. */
  readonly experiment: Experiment
  /** The policies in force at the start of the run. */
  readonly policies: ExperimentConfig['policies']
  /** Milliseconds since the Unix epoch. */
  readonly startedAtWall: number
  /** On the monotonic clock. */
  readonly startedAt: Millis
  readonly samples: Samples
  readonly looks: readonly Look[]
  readonly judgement: Judgement
  /** Undefined while the run is under way. */
  readonly end: { readonly at: Millis; readonly atWall: number; readonly reason: string } | undefined
}

/** The facts about an ended run, as plain data. */
export interface EndedRun extends Pick<Run, 'experiment' | 'policies' | 'startedAtWall' | 'judgement'> {
  readonly ranMs: Millis
  /** True when the run ended without a result: by hand, or by a change of the config. */
  readonly isStopped: boolean
  readonly arms: Readonly<Record<string, ArmFigures>>
  readonly faults: readonly HitFault[]
}

/** A configured experiment, with its current or else its last run. A last run may have had other settings. */
export interface Listed {
  readonly experiment: Experiment
  readonly run: Run | undefined
}

interface OpenRun extends Run, Running {
  readonly looks: Look[]
  judgement: Judgement
  /** Time on the monotonic clock before which requests for the experiment get the earlier judgement. */
  judgedUntil: Millis
  end: Run['end']
}

export interface ExperimentsParts {
  readonly clock: Clock
  /** A task without an ended call for this many milliseconds is over. */
  readonly quiet: () => Millis
  /** Applies the config in force again. Throws when the config does not compile. */
  readonly refresh: () => void
  /** Makes policies forget these arms of an earlier run. */
  readonly forget: (arms: readonly string[]) => void
  /** Receives events for operators. Must not throw. */
  readonly emit: (event: ExperimentEvent) => void
  /** The guarded run, if any: no comparison may take its calls. */
  readonly taken?: () => Experiment | undefined
}

export type ExperimentEvent =
  | { readonly type: 'started'; readonly name: string }
  /** The experiment begins when `for` has ended. */
  | { readonly type: 'waits'; readonly name: string; readonly for: string }
  /** The config could not be applied again, so arms of an ended run remain. */
  | { readonly type: 'failed'; readonly why: string }
  | {
      readonly type: 'ended'
      readonly name: string
      readonly reason: string
      readonly sentence: string
      readonly run: EndedRun
    }

export type Done = { readonly ok: true } | { readonly ok: false; readonly why: string }

/** `judged`: the verdict is known. `over`: the run is whole, and not judged yet. `stopped`: the run is not whole. */
type End = 'judged' | 'over' | 'stopped'

/** Time between looks at running experiments, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** Pause after a look, in multiples of its duration: bounds the share of time spent on looks, for all callers. */
const PAUSES = 50

/** Looks kept per run; beyond, every second look is dropped. */
const MAX_LOOKS = 240

/**
 * Decides which experiments run and which arm each call is in, and collects the results. Outlives all generations. A
 * generation is compiled with its config's arms; the arms run once the generation is in force.
 */
export class Experiments {
  readonly unit = measuredUnit
  readonly #parts: ExperimentsParts
  readonly #runs = new Map<string, OpenRun>()
  /** The last ended run of each experiment. */
  readonly #ended = new Map<string, OpenRun>()
  /** Names of experiments an operator has just started. */
  readonly #started = new Set<string>()
  /** Names of waiting experiments, each with the name of the experiment that blocks it. */
  #waiting: ReadonlyMap<string, string> = new Map()
  /** Calls under way in arms, ended runs included, by arm. */
  readonly #underWay = new Map<string, number>()
  #config: ExperimentConfig = {
    experiments: [],
    policies: { defaults: {}, overrides: [], sets: {} },
    mcpServers: {},
  }
  #cancelLook: Cancel | undefined
  #pauseMs: Millis = LOOK_MS
  readonly #room = new Room(() => this.#reclaim())

  constructor(parts: ExperimentsParts) {
    this.#parts = parts
  }

  /** Returns the arms for a config's generation. Policies forget earlier runs of arms that begin now. */
  armsIn(config: ExperimentConfig): Record<string, ArmSettings> {
    const running = this.#running(config)
    const beginning = running.flatMap(({ begins, experiment }) => (begins ? experiment : []))
    this.#parts.forget(armNames(beginning))
    return armsOf(running)
  }

  /**
   * Returns, for a config's generation, a function that writes the arm into a call's record, before anything else sees
   * the call. Returns undefined when no experiment runs in the generation.
   */
  assignIn(config: ExperimentConfig): ((call: Call) => void) | undefined {
    const running = this.#running(config).map(({ experiment }) => ({
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
        call.record.isArmAsked = found.isAsked
        this.#underWay.set(found.arm, (this.#underWay.get(found.arm) ?? 0) + 1)
        const { countsAs: tenant } = call
        const { isFallback } = found
        const sample = samples?.begin(found.unit, found.name, {
          tenant,
          now: this.#parts.clock.now(),
          isFallback,
        })
        measuredUnit.note(call.record, sample)
        return
      }
    }
  }

  follow(config: ExperimentConfig): void {
    const steps = agendaFor(config, this.#situation)
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
      const { name } = step.experiment
      const run = this.#runs.get(name)
      if (step.runs) {
        if (step.begins) this.#open(step, config)
      } else if (run !== undefined && step.ends !== undefined) this.#close(run, step.ends)
      else if (step.waitsFor !== undefined && this.#waiting.get(name) !== step.waitsFor)
        this.#parts.emit({ type: 'waits', name, for: step.waitsFor })
    }
    this.#waiting = new Map(
      steps.flatMap((step) =>
        !step.runs && step.waitsFor !== undefined ? [[step.experiment.name, step.waitsFor]] : [],
      ),
    )
    this.#started.clear()
    this.#look()
    // Applies the config again later, because this config is only just coming into force.
    if (steps.some((step) => !step.runs && step.beginsNext === true))
      this.#parts.clock.after(0, () => this.#refresh())
  }

  /** Returns the name of the blocking experiment; undefined for none. */
  waitsFor(name: string): string | undefined {
    return this.#waiting.get(name)
  }

  /** Starts an experiment, also one that has ended, for an operator. */
  start(name: string): Done {
    const experiment = this.#config.experiments.find((one) => one.name === name)
    if (experiment === undefined) return { ok: false, why: `there is no experiment "${name}"` }
    if (this.#runs.has(name)) return { ok: false, why: `experiment "${name}" runs already` }
    const servers = Object.keys(this.#config.mcpServers)
    const running = [...this.#situation.taken, ...[...this.#runs.values()].map((run) => run.experiment)]
    const other = running.find((one) => meet(one, experiment, servers))
    if (other !== undefined)
      return {
        ok: false,
        why: `experiment "${other.name}" already runs at a server of this experiment: only experiments that a config starts together share servers`,
      }
    // Calls of ended runs still hold slots: stopping and starting repeatedly would give a server more and more slots.
    const left = [...this.#ended.values()]
      .filter((run) => meet(run.experiment, experiment, servers))
      .flatMap((run) => armNames([run.experiment]))
      .reduce((sum, arm) => sum + (this.#underWay.get(arm) ?? 0), 0)
    if (left > 0)
      return {
        ok: false,
        why: `calls of an earlier run are still under way (${left}): try again when all have ended`,
      }
    this.#started.add(name)
    try {
      this.#parts.refresh()
      return { ok: true }
    } finally {
      this.#started.delete(name)
    }
  }

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

  /** Records the end of a tool call; its record names the arm. */
  end(record: CallRecord, outcome: Outcome): void {
    const { arm } = record
    if (arm === '') return
    this.#left(arm)
    const sample = measuredUnit.of(record) as UnitSample | undefined
    const run = this.#runs.get(arm.slice(0, arm.indexOf('/')))
    // Calls of an ended run change neither its samples nor the next run's.
    if (sample === undefined || run?.samples.has(sample) !== true) return
    const tookMs = endIn(sample, record, outcome, this.#parts.clock.now())
    if (tookMs !== undefined) run.samples.noteDuration(sample.arm, tookMs)
    const fates = faultFates.of(record)
    if (fates !== undefined) run.samples.noteFates(sample.arm, fates)
  }

  report({ source, tenant, id, arm }: ReportedTask, outcome: 'succeeded' | 'failed'): void {
    const at = arm.indexOf('/')
    this.#runs.get(arm.slice(0, at))?.samples.report(taskUnit(source, tenant, id), arm.slice(at + 1), outcome)
  }

  /** Returns the configured experiments in order, judged at their latest look. */
  runs(): readonly Listed[] {
    return this.#config.experiments.map((experiment) => {
      const { name } = experiment
      return { experiment, run: this.#runs.get(name) ?? this.#ended.get(name) }
    })
  }

  /** Returns an experiment, judged now unless a recent judgement was costly (see `PAUSES`); undefined if unknown. */
  get(name: string): Listed | undefined {
    const run = this.#runs.get(name)
    if (run !== undefined && this.#parts.clock.now() >= run.judgedUntil) this.#judge(run)
    return this.runs().find(({ experiment }) => experiment.name === name)
  }

  close(): void {
    this.#cancelLook?.()
    this.#cancelLook = undefined
  }

  #running(config: ExperimentConfig): (Portioned & { readonly begins: boolean })[] {
    return agendaFor(config, this.#situation).flatMap((step) => (step.runs ? step : []))
  }

  get #situation(): Situation {
    const taken = this.#parts.taken?.()
    return {
      running: this.#runs,
      ended: this.#ended,
      started: this.#started,
      taken: taken === undefined ? [] : [taken],
      before: this.#config.experiments,
    }
  }

  #left(arm: string): void {
    const count = this.#underWay.get(arm)
    if (count === undefined) return
    if (count > 1) this.#underWay.set(arm, count - 1)
    else this.#underWay.delete(arm)
  }

  /** Applies changes to the config in force; a config that does not compile changes nothing. */
  #refresh(): void {
    try {
      this.#parts.refresh()
    } catch (error) {
      this.#parts.emit({ type: 'failed', why: (error as Error).message })
    }
  }

  #open({ experiment, portion }: Portioned, config: ExperimentConfig): void {
    const { clock, emit } = this.#parts
    this.#ended.get(experiment.name)?.samples.clear()
    const samples = new Samples(this.#room)
    const run: OpenRun = {
      experiment,
      policies: config.policies,
      startedAtWall: clock.wall(),
      startedAt: clock.now(),
      samples,
      looks: [],
      judgement: judge(experiment, { units: [], assigned: new Map() }, { isOver: false }),
      judgedUntil: 0,
      end: undefined,
      settings: settingsOf(experiment),
      sets: setsOf(experiment, config),
      portion,
    }
    this.#ended.delete(experiment.name)
    this.#runs.set(experiment.name, run)
    emit({ type: 'started', name: experiment.name })
  }

  /** Ends a run, without applying the config again. */
  #close(run: OpenRun, reason: string, end: End = 'stopped'): void {
    const { clock, emit } = this.#parts
    const { experiment, samples, policies, startedAtWall } = run
    const { name } = experiment
    const known = end === 'judged' ? undefined : this.#known(run, true)
    const isApart = known !== undefined && takesLong(experiment, known)
    if (known !== undefined && !isApart)
      this.#take(run, known, judgeUnits(experiment, known, { isOver: true }))
    run.end = { at: clock.now(), atWall: clock.wall(), reason }
    samples.end()
    this.#runs.delete(name)
    this.#ended.set(name, run)
    // A later change of the config may clear the samples before the judgement is ready.
    const facts = {
      ...{ experiment, policies, startedAtWall },
      ranMs: run.end.at - run.startedAt,
      isStopped: end === 'stopped',
      arms: Object.fromEntries(Object.keys(experiment.arms).map((arm) => [arm, samples.figuresOf(arm)])),
      faults: samples.faults,
    }
    const tell = () => {
      const { judgement } = run
      const { sentence } = judgement.verdict
      emit({ type: 'ended', name, reason, sentence, run: { ...facts, judgement } })
    }
    if (!isApart) return tell()
    // Until the judgement is ready, the judgement of the latest look is shown.
    void judgeApart(experiment, known).then((judged) => {
      this.#take(run, known, judged)
      tell()
    })
  }

  /** Ends a run and applies the config again: its calls leave their arms. */
  #finish(run: OpenRun, reason: string, end?: End): void {
    this.#close(run, reason, end)
    this.#refresh()
  }

  /** Schedules the next look. Keeps an already scheduled look: successive configs must not postpone the look. */
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
    const isOver = ranMs >= run.experiment.maxDuration
    if (isOver && takesLong(run.experiment, this.#known(run, true)))
      return this.#finish(run, 'its maximum duration was over', 'over')
    this.#judge(run, isOver)
    run.looks.push(lookOf(run.judgement, ranMs))
    if (run.looks.length > MAX_LOOKS)
      run.looks.splice(0, run.looks.length, ...run.looks.filter((_, at) => at % 2 === 1))
    const { harm, ends } = run.judgement.verdict
    if (harm) this.#finish(run, 'an arm did harm', 'judged')
    else if (isOver) this.#finish(run, 'its maximum duration was over', 'judged')
    else if (ends) this.#finish(run, 'its verdict was found', 'judged')
  }

  /** Frees the samples of the oldest ended run with samples. The findings of the run stay. */
  #reclaim(): void {
    for (const { samples } of this.#ended.values()) {
      if (samples.all().length === 0) continue
      samples.clear()
      return
    }
  }

  #judge(run: OpenRun, isOver = false): void {
    const { clock } = this.#parts
    const begun = clock.now()
    const known = this.#known(run, isOver)
    this.#take(run, known, judgeUnits(run.experiment, known, { isOver }))
    const tookMs = clock.now() - begun
    run.judgedUntil = begun + tookMs * PAUSES
  }

  /** Returns the units of a run for a judgement. `isOver`: no more calls of the run will end. */
  #known({ experiment, samples }: OpenRun, isOver: boolean): KnownUnits {
    const { clock, quiet } = this.#parts
    const now = clock.now()
    const waiting = {
      quiet: isOver ? 0 : quiet(),
      needsOutcome: !isOver && experiment.metric === 'task_success',
    }
    const all = samples.all()
    const placesOf = (units: readonly UnitSample[]) => {
      const some = new Set(units)
      return all.flatMap((unit, at) => (some.has(unit) ? at : []))
    }
    const assigned = new Map(Object.keys(experiment.arms).map((arm) => [arm, samples.unitsOf(arm)]))
    return {
      all,
      cohort: placesOf(samples.cohort(now, waiting)),
      open: placesOf(samples.open(now, waiting)),
      assigned,
    }
  }

  #take(run: OpenRun, { all, cohort, open }: KnownUnits, { judgement, isOfAll }: Judged): void {
    // Open units have no figures, even where a verdict assumes their ends.
    const isOpen = new Set(open)
    run.samples.mark(isOfAll ? all.filter((_, at) => !isOpen.has(at)) : cohort.map((at) => all[at]!))
    run.judgement = judgement
  }
}

function lookOf({ verdict, verdicts, units }: Judgement, atMs: Millis): Look {
  const of = ({ difference, low, high }: Verdict) => ({ difference, low, high })
  const byTreatment = Object.fromEntries(Object.entries(verdicts).map(([arm, one]) => [arm, of(one)]))
  return {
    atMs,
    units,
    ...of(verdict),
    byTreatment,
    ...(verdict.assumed !== undefined && { assumed: verdict.assumed }),
  }
}

export interface ReportedTask {
  readonly source: string
  readonly tenant: string
  readonly id: string
  /** The `arm` of its calls; empty for none. */
  readonly arm: string
}
