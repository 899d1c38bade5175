import { valueInWords } from '../../claims/judge.ts'
import { subjects } from '../../claims/subjects.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { anomaliesIn, learn } from './baseline.ts'
import { type CallMetric, failuresIn, judgeRun, metricIn, type ServerVital } from './claims.ts'
import { type Breach, breachInWords, Gate, type Rule, ruleInWords } from './gate.ts'
import type { Figures, Meter } from './meter.ts'
import {
  type Change,
  type Detection,
  type Estimated,
  type FaultRecord,
  isOver,
  type LayerState,
  type ProbeRow,
  type Proof,
  type RunRecord,
} from './record.ts'
import { Samples } from './samples.ts'
import { claimsDuring, type EndState } from './spec.ts'
import { numbered } from '../../units/numbered.ts'

export interface StageOrder {
  /** From 0. */
  readonly index: number
  /** Share of the treatment, in (0, 1). */
  readonly share: number
  /** Duration of this stage and all later stages, in milliseconds: no fault may stay armed for much longer. */
  readonly remainingMs: Millis
}

/** The gateway as seen and changed by a run. */
export interface World {
  /** Begins to meter calls and to play the run's load. Throws on failure. */
  begin(): void
  /** Returns true when the agents of the load have had their first answers, or there is no load. */
  isReady(): boolean
  /** Puts a stage into force: arms, then faults. Throws on failure. */
  arm(stage: StageOrder): void
  /**
   * Renews the leases of the armed faults until the next tick or two. Returns why the run cannot continue: its faults
   * are gone, other faults were armed, or its load ended. Undefined when the run can continue.
   */
  renew(): string | undefined
  /** Removes faults and arms. Never throws; may be repeated. */
  rollback(): Omit<Proof, 'atMs' | 'tookMs' | 'troubled'>
  /** Ends the run's measurement and load. */
  end(): void
  servers(): readonly ServerVital[]
  /** The longest deadline of a treatment's call, in milliseconds. */
  longestMs(): Millis
  /** The layers in force at the targets, layers of the arms included. */
  layers(): readonly LayerState[]
  /** Counts of the run's faults since first armed; `engineErrors`: since the engine started. */
  faults(): { readonly faults: readonly FaultRecord[]; readonly engineErrors: number }
}

export interface LifecycleParts {
  readonly clock: Clock
  readonly meter: Meter
  readonly world: World
  readonly record: RunRecord
  /**
   * Called on each change: `step` for a new phase, stage or state, else `tick`, once a second. A returned promise
   * resolves with why the step could not be written, or undefined once written; a stage waits for this promise.
   */
  readonly onChange: (record: RunRecord, what: 'step' | 'tick') => void | Promise<string | undefined>
}

/** Time between looks of a run, in milliseconds. */
export const TICK_MS: Millis = 250

const MAX_DECISIONS = 200
const MAX_TROUBLES = 100
const MAX_PROBES = 300

/** How long a stage waits for its record to be written, in milliseconds. */
const WRITE_MS: Millis = 2_000

/** Timeout for the first answers of a load's agents, in milliseconds. */
const READY_MS: Millis = 30_000

/** Calls of the treatment needed to check its share. */
const LEAST_FOR_SHARE = 50

/** Retries of an incomplete rollback, one per tick. */
const ROLLBACK_TRIES = 40

/** Maximum number of signs kept until the time of the first effect is known. */
const MAX_SIGNS = 64

/** How a run ends after the recovery. */
interface Outcome {
  readonly state: EndState
  readonly reason: string
}

/**
 * A run, from its baseline to its verdict, as a state machine over the clock. However the run ends, its faults and arms
 * are removed first; only then the run checks whether the servers recover.
 */
export class Lifecycle {
  readonly #parts: LifecycleParts
  #record: RunRecord
  #beganAt: Millis = 0
  #phaseAt: Millis = 0
  #cancel: Cancel | undefined
  #gate: Gate | undefined
  readonly #seconds: Figures[] = []
  #sampledAt: Millis = 0
  readonly #samples = new Samples()
  /** Injections counted in rows so far. */
  #injected = 0
  #toldAt: Millis = 0
  readonly #signs: { readonly sign: string; readonly at: Millis }[] = []
  #engineErrors = 0
  /** Undefined: the recovery decides how the run ends. */
  #outcome: Outcome | undefined
  #rollbacks = 0
  #armedAt: Millis = Infinity
  /** True while the stage is in force; false while its record is being written. */
  #isInForce = false
  /** Recovery time of each troubled layer since the end of the faults; null: not yet recovered. */
  readonly #recovered = new Map<string, Millis | null>()
  /** True once the load plays and the baseline is being measured. */
  #isReady = false
  #steadyAfterMs: Millis | undefined
  /** True when no call has ended for too long after the faults. */
  #isSilentAfter = false

  constructor(parts: LifecycleParts) {
    this.#parts = parts
    this.#record = parts.record
  }

  get record(): RunRecord {
    return this.#record
  }

  begin(): void {
    const { clock, world } = this.#parts
    const now = clock.now()
    this.#beganAt = this.#phaseAt = this.#sampledAt = now
    this.#change({ state: 'running', phase: 'baseline', beganAt: clock.wall(), reason: 'it runs' })
    try {
      world.begin()
      this.#engineErrors = world.faults().engineErrors
      this.#change({ servers: world.servers() })
      if (world.isReady()) this.#measure(now)
      else this.#decide('load', 'its agents open their sessions and wait for their first answers')
      void this.#step()
    } catch (error) {
      return this.fail((error as Error).message)
    }
    this.#wait()
  }

  /** For operators. In a stage: rolls back at once, then watches the recovery. Otherwise ends the run now. */
  stop(by: string, why: string): void {
    try {
      this.#stop(by, why)
    } catch (error) {
      this.#failOf(error as Error)
    }
  }

  #stop(by: string, why: string): void {
    const reason = `${by} stopped it: ${why}`
    if (this.#record.phase === 'stage') this.#leave({ state: 'aborted', reason })
    else if (!isOver(this.#record)) {
      const outcome = this.#outcome ?? { state: 'aborted', reason }
      if (this.#record.phase !== 'recovery') this.#rollback()
      this.#noteRecovery()
      this.#finish(outcome)
    }
  }

  /** Rolls back, and ends the run as failed. */
  fail(why: string): void {
    if (isOver(this.#record)) return
    const isInStage = this.#record.phase === 'stage'
    this.#rollback()
    if (isInStage) this.#closeStage()
    this.#finish({ state: 'failed', reason: why })
  }

  /** Ends the run after a bug. Rolls back first, because any other step may meet the bug again. */
  #failOf(defect: Error): void {
    const reason = `internal error (a bug in Breakwater): ${defect.message}`
    const { clock, world } = this.#parts
    const begun = clock.now()
    const left = world.rollback()
    try {
      this.fail(reason)
    } catch {
      const took = { atMs: begun - this.#beganAt, tookMs: clock.now() - begun }
      this.#change({ rollback: { ...left, ...took, troubled: this.#record.rollback?.troubled ?? [] } })
      this.#finish({ state: 'failed', reason })
    }
  }

  /** Records a sign at a target: a breaker changed, a replica was ejected, a server is down. */
  noticed(sign: string): void {
    if (this.#record.phase === 'stage' && this.#signs.length < MAX_SIGNS)
      this.#signs.push({ sign, at: this.#parts.clock.now() })
  }

  probed(probe: Omit<ProbeRow, 'atMs'>): void {
    const { phase, probes } = this.#record
    if (phase === 'waiting' || phase === 'over' || probes.length >= MAX_PROBES) return
    const atMs = Math.round(this.#parts.clock.now() - this.#beganAt)
    this.#change({ probes: [...probes, { atMs, ...probe }] })
  }

  #wait(): void {
    if (isOver(this.#record)) return
    this.#cancel = this.#parts.clock.after(TICK_MS, () => {
      try {
        this.#tick()
      } catch (error) {
        this.#failOf(error as Error)
      }
      this.#wait()
    })
  }

  #tick(): void {
    const now = this.#parts.clock.now()
    switch (this.#record.phase) {
      case 'baseline':
        if (!this.#isReady) return this.#awaitLoad(now)
        this.#sample(now, 1_000)
        return this.#inBaseline(now)
      case 'stage':
        this.#sample(now, this.#samples.everyMs)
        return this.#inStage(now)
      case 'recovery':
        this.#sample(now, this.#samples.everyMs)
        return this.#inRecovery(now)
      case 'waiting':
      case 'over':
        return
    }
  }

  /** The baseline waits for the load: while sessions open, calls are not yet typical. */
  #awaitLoad(now: Millis): void {
    const { world } = this.#parts
    const gone = world.renew()
    if (gone !== undefined) this.#giveUp('aborted', gone)
    else if (world.isReady()) this.#measure(now)
    else if (now - this.#phaseAt >= READY_MS)
      this.#giveUp('failed', `the agents of its load had no first answers within ${formatDuration(READY_MS)}`)
  }

  /** Begins to count the baseline. */
  #measure(now: Millis): void {
    this.#isReady = true
    this.#phaseAt = this.#sampledAt = now
    this.#parts.meter.cut()
    this.#decide('baseline', `calls are watched for ${formatDuration(this.#record.spec.baseline.duration)}`)
  }

  #inBaseline(now: Millis): void {
    const { meter, world } = this.#parts
    const { spec, firstStage } = this.#record
    const { minimum, duration } = spec.baseline
    if (this.#isSilent(now))
      return this.#giveUp('invalid', `no call has ended for ${formatDuration(spec.gate.missing)}`)
    const gone = world.renew()
    if (gone !== undefined) return this.#giveUp('aborted', gone)
    if (now - this.#phaseAt < duration) return
    this.#closeSample(now)
    const figures = meter.since('all')
    const before = judgeRun(spec.hypothesis.steadyState, figures, world.servers())
    this.#change({ baseline: figures, hypothesis: { before, after: [] } })
    if (figures.calls === 0)
      return this.#giveUp('invalid', 'no call to the targets ended in the baseline: is there any traffic?')
    if (figures.calls < minimum)
      return this.#giveUp(
        'inconclusive',
        `the baseline has ${numbered(figures.calls, 'call')} and needs ${minimum}`,
      )
    if (before.some(({ holds }) => holds !== true))
      return this.#giveUp(
        'failed',
        `the steady state does not hold: ${failuresIn(before)}; nothing was injected`,
      )
    const anomalies = anomaliesIn(this.#seconds)
    if (anomalies.length > 0)
      return this.#giveUp(
        'failed',
        `the baseline is anomalous: ${anomalies.join('; ')}; nothing was injected`,
      )
    const rules: Rule[] = [...spec.gate.rollbackOn]
    for (const learning of spec.baseline.learn) {
      const learned = learn(learning, this.#seconds)
      if ('problem' in learned) return this.#giveUp('inconclusive', learned.problem)
      const { rule } = learned
      if (subjects[rule.metric].unit === 'ms' && rule.above >= world.longestMs())
        return this.#giveUp(
          'inconclusive',
          `a rule learned from the baseline could never trigger, because calls end at their deadline of ${formatDuration(world.longestMs())}: ${ruleInWords(rule)}`,
        )
      rules.push(rule)
    }
    this.#gate = new Gate({ rules, minimum: spec.gate.minimum })
    this.#change({ rules })
    this.#decide('steady state', `it holds over ${numbered(figures.calls, 'call')}`)
    for (const rule of rules.filter(({ learned }) => learned !== undefined))
      this.#decide('learned', ruleInWords(rule))
    this.#enter(firstStage, now)
  }

  /** Writes the stage to disk before arming it: after a crash, the journal knows of the faults. */
  #enter(index: number, now: Millis): void {
    const { stages } = this.#record.spec
    const { share, duration } = stages[index]!
    this.#isInForce = false
    this.#phaseAt = now
    this.#change({ phase: 'stage', stage: index })
    this.#decide(
      `stage ${index + 1} of ${stages.length}`,
      `the treatment gets ${Math.round(share * 100)}% of matching calls for ${formatDuration(duration)}`,
    )
    this.#parts.meter.cut()
    const written = this.#step()
    if (written === undefined) return this.#arm(index)
    void written.then((problem) => {
      const { phase, stage } = this.#record
      if (phase !== 'stage' || stage !== index || this.#isInForce) return
      if (problem === undefined) this.#arm(index)
      else this.fail(problem)
    })
  }

  #arm(index: number): void {
    const { world, clock } = this.#parts
    const { stages } = this.#record.spec
    const remainingMs = stages.slice(index).reduce((sum, stage) => sum + stage.duration, 0)
    this.#isInForce = true
    this.#phaseAt = clock.now()
    this.#armedAt = Math.min(this.#armedAt, this.#phaseAt)
    try {
      world.arm({ index, share: stages[index]!.share, remainingMs })
    } catch (error) {
      this.fail(`stage ${index + 1} could not be put into force: ${(error as Error).message}`)
    }
  }

  #inStage(now: Millis): void {
    const { meter, world } = this.#parts
    const { spec, stage } = this.#record
    const { over, missing, minimum } = spec.gate
    if (!this.#isInForce && now - this.#phaseAt >= WRITE_MS)
      return this.fail(`the run could not be written to the journal within ${formatDuration(WRITE_MS)}`)
    // While a later stage waits for the disk, the previous stage stays in force.
    if (!this.#isInForce && this.#record.stages.length === 0) return
    this.#noteFaults()
    this.#noteTroubles(now, world.layers())
    const { engineErrors } = this.#record
    if (engineErrors > 0)
      return this.#leave({
        state: 'invalid',
        reason: `the fault engine failed ${numbered(engineErrors, 'time')}`,
      })
    const arms = { control: meter.over('control', over), treatment: meter.over('treatment', over) }
    const breach = this.#gate?.look(now, arms)
    this.#change({ nearest: this.#gate?.nearest })
    if (breach !== undefined) return this.#breached(breach)
    const gone = world.renew()
    if (gone !== undefined) return this.#leave({ state: 'aborted', reason: gone })
    if (this.#isSilent(now))
      return this.#leave({ state: 'invalid', reason: `no call has ended for ${formatDuration(missing)}` })
    if (meter.isStuck('treatment', missing))
      return this.#leave({
        state: 'aborted',
        reason: `no call of the treatment has ended for ${formatDuration(missing)}, and some are under way`,
      })
    if (!this.#isInForce) return
    const treated = meter.since('treatment').calls
    const others = meter.since('control').calls
    const share = spec.stages[stage]!.share
    if (treated >= LEAST_FOR_SHARE && treated / (treated + others) > Math.max(2 * share, share + 0.25))
      return this.#leave({
        state: 'invalid',
        reason: `the treatment had ${treated} of ${treated + others} calls, and stage ${stage + 1} orders ${Math.round(share * 100)}%: there are too few tasks or sessions to divide`,
      })
    if (now - this.#phaseAt < spec.stages[stage]!.duration) return this.#lookForBlindness(now)
    if (treated < minimum)
      return this.#leave({
        state: 'inconclusive',
        reason: `the treatment had ${numbered(treated, 'call')} in stage ${stage + 1}, and the gate needs ${minimum}`,
      })
    const [blind] = this.#gate?.unmeasuredSince(this.#phaseAt) ?? []
    if (blind !== undefined)
      return this.#leave({
        state: 'inconclusive',
        reason: `a rule of the gate could not be measured in stage ${stage + 1}, with fewer than ${minimum} calls in each ${formatDuration(over)}: ${ruleInWords(blind)}`,
      })
    if (stage + 1 === spec.stages.length) return this.#leave(undefined)
    this.#closeStage()
    this.#enter(stage + 1, now)
  }

  /** Ends a run with a rule that was not measurable for too long: a blind gate protects nobody. */
  #lookForBlindness(now: Millis): void {
    const { over, missing, minimum } = this.#record.spec.gate
    // Adds `over`: a window stays measurable until its earlier calls have left.
    const since = now - missing - over
    const [blind] = since < this.#armedAt ? [] : (this.#gate?.unmeasuredSince(since) ?? [])
    if (blind === undefined) return
    this.#leave({
      state: 'inconclusive',
      reason: `a rule of the gate could not be measured for ${formatDuration(missing + over)}, with fewer than ${minimum} calls in each ${formatDuration(over)}: ${ruleInWords(blind)}`,
    })
  }

  #breached(breach: Breach): void {
    this.#change({ breach })
    this.#leave({ state: 'aborted', reason: breachInWords(breach) })
  }

  /** Removes faults and arms at once, then begins the recovery. `outcome` undefined: the recovery decides. */
  #leave(outcome: Outcome | undefined): void {
    this.#outcome = outcome
    this.#rollback()
    this.#closeStage()
    this.#phaseAt = this.#parts.clock.now()
    this.#parts.meter.cut()
    this.#change({ phase: 'recovery', reason: outcome?.reason ?? 'all stages were played' })
    this.#decide('recovery', outcome?.reason ?? 'the gate held: waiting for the steady state to come back')
    void this.#step()
  }

  #inRecovery(now: Millis): void {
    const { meter, world } = this.#parts
    const { spec, rollback } = this.#record
    if (rollback !== undefined && !isClean(rollback)) {
      if (++this.#rollbacks > ROLLBACK_TRIES)
        return this.#finish({ state: 'failed', reason: 'the rollback left something behind' })
      // No recovery is possible while faults or arms remain.
      return this.#rollback()
    }
    const { within, over } = spec.recovery
    const sinceMs = now - this.#phaseAt
    const layers = world.layers()
    this.#noteTroubles(now, layers)
    for (const { name, isWell } of layers) {
      if (!isWell) this.#recovered.set(name, null)
      else if (this.#recovered.get(name) === null) this.#recovered.set(name, sinceMs)
    }
    if (sinceMs >= over) {
      const figures = meter.over('all', over)
      const after = judgeRun(spec.hypothesis.steadyState, figures, world.servers())
      this.#change({ hypothesis: { before: this.#record.hypothesis.before, after } })
      const isSteady = figures.calls >= this.#callsWanted(over) && after.every(({ holds }) => holds === true)
      if (isSteady) this.#steadyAfterMs ??= sinceMs - over
      else this.#steadyAfterMs = undefined
    }
    const isWell = [...this.#recovered.values()].every((at) => at !== null)
    this.#isSilentAfter = this.#isSilent(now)
    const isOut = sinceMs >= within || this.#isSilentAfter
    if (!isOut && (this.#steadyAfterMs === undefined || !isWell)) return
    this.#noteRecovery()
    this.#finish(this.#outcome ?? this.#verdict())
  }

  /** Returns half the calls of a baseline window, at least 1 and at most the gate's minimum. */
  #callsWanted(overMs: Millis): number {
    const { spec, baseline } = this.#record
    const usual = ((baseline?.calls ?? 0) * overMs) / spec.baseline.duration
    return Math.max(1, Math.min(spec.gate.minimum, Math.floor(usual / 2)))
  }

  #verdict(): Outcome {
    const { spec, faults, stages, recovery, hypothesis } = this.#record
    const injected = faults.reduce((sum, fault) => sum + fault.injected, 0)
    if (spec.faults.length > 0 && injected === 0) {
      const decided = faults.reduce((sum, fault) => sum + fault.decided, 0)
      const why = decided === 0 ? 'no call matched' : `${numbered(decided, 'call')} matched, and none was hit`
      return { state: 'invalid', reason: `nothing was injected: ${why}` }
    }
    if (recovery?.steadyAfterMs === undefined) {
      const isFalse = hypothesis.after.some(({ holds }) => holds === false)
      if (this.#isSilentAfter && !isFalse)
        return {
          state: 'invalid',
          reason: `no call has ended for ${formatDuration(spec.gate.missing)} after the faults`,
        }
      if (hypothesis.after.every(({ holds }) => holds === undefined))
        return { state: 'invalid', reason: 'there was nothing to measure after the faults' }
      return {
        state: 'deviated',
        reason: `the steady state did not come back within ${formatDuration(spec.recovery.within)}: ${failuresIn(hypothesis.after) || 'too few calls'}`,
      }
    }
    const [stuck] = Object.entries(recovery.layers).find(([, at]) => at === null) ?? []
    if (stuck !== undefined) return { state: 'deviated', reason: `${stuck} did not recover` }
    const at = stages.findIndex(({ claims }) => claims.some(({ holds }) => holds === false))
    if (at >= 0)
      return {
        state: 'deviated',
        reason: `the hypothesis did not hold in stage ${this.#record.firstStage + at + 1}: ${failuresIn(stages[at]!.claims)}`,
      }
    return { state: 'completed', reason: 'the hypothesis held in all stages and after them' }
  }

  /** Ends a run before anything was injected. */
  #giveUp(state: EndState, reason: string): void {
    this.#rollback()
    this.#finish({ state, reason })
  }

  #finish({ state, reason }: Outcome): void {
    const { clock, meter, world } = this.#parts
    this.#cancel?.()
    const { phase } = this.#record
    if (phase === 'recovery' || (phase === 'baseline' && this.#isReady)) this.#closeSample(clock.now())
    world.end()
    // Calls ended since the rollback count too.
    this.#noteFaults()
    this.#change({ traces: [...meter.traces], detection: this.#detection() })
    this.#change({ state, reason, phase: 'over', endedAt: clock.wall() })
    this.#change({ estimates: estimatesOf(this.#record) })
    this.#decide(state, reason)
    void this.#step()
  }

  #rollback(): void {
    const { clock, world } = this.#parts
    const begun = clock.now()
    this.#noteFaults()
    const troubled = world.layers().filter(({ isWell }) => !isWell)
    for (const { name } of troubled) if (!this.#recovered.has(name)) this.#recovered.set(name, null)
    const left = world.rollback()
    // The layers of the arms disappear with the arms.
    const present = new Set(world.layers().map(({ name }) => name))
    for (const name of this.#recovered.keys()) if (!present.has(name)) this.#recovered.delete(name)
    const proof: Proof = {
      ...left,
      atMs: begun - this.#beganAt,
      tookMs: clock.now() - begun,
      troubled: this.#record.rollback?.troubled ?? troubled.map(({ name, state }) => `${name} ${state}`),
    }
    this.#change({ rollback: proof })
    const found = isClean(proof)
      ? 'nothing of the run is armed'
      : `left: ${[...proof.armed, ...proof.arms].join(', ')}`
    this.#decide('rollback', found)
  }

  #closeStage(): void {
    const { clock, meter, world } = this.#parts
    const { spec, stage, stages } = this.#record
    const { over } = spec.gate
    this.#closeSample(clock.now())
    const [control, treatment] = [meter.since('control', over), meter.since('treatment', over)]
    const closed = {
      share: spec.stages[stage]!.share,
      beganAtMs: this.#phaseAt - this.#beganAt,
      endedAtMs: clock.now() - this.#beganAt,
      control,
      treatment,
      cells: { control: meter.cellsSince('control'), treatment: meter.cellsSince('treatment') },
      claims: judgeRun(claimsDuring(spec), treatment, world.servers()),
    }
    this.#change({ stages: [...stages, closed] })
  }

  #noteTroubles(now: Millis, layers: readonly LayerState[]): void {
    const atMs = Math.round(now - this.#beganAt)
    const bad = new Map(layers.flatMap(({ name, state, isWell }) => (isWell ? [] : [[name, state]])))
    const present = new Set(layers.map(({ name }) => name))
    const { troubles } = this.#record
    const going = new Set(troubles.flatMap(({ name, untilMs }) => (untilMs === undefined ? name : [])))
    const begun = [...bad].flatMap(([name, state]) =>
      going.has(name) ? [] : { name, state, fromMs: atMs, untilMs: undefined },
    )
    const isOver = (name: string) => present.has(name) && !bad.has(name)
    if (begun.length === 0 && ![...going].some(isOver)) return
    this.#change({
      troubles: [
        ...troubles.map((one) =>
          one.untilMs === undefined && isOver(one.name) ? { ...one, untilMs: atMs } : one,
        ),
        ...begun,
      ].slice(0, MAX_TROUBLES),
    })
  }

  #noteRecovery(): void {
    const { phase, spec } = this.#record
    if (phase !== 'recovery') return
    const brokenAt = this.#parts.meter.firstEffectAt ?? this.#armedAt
    const steadyMs = this.#steadyAfterMs
    this.#change({
      recovery: {
        recoveredAfterMs: steadyMs === undefined ? undefined : this.#phaseAt + steadyMs - brokenAt,
        steadyAfterMs: steadyMs,
        layers: Object.fromEntries(this.#recovered),
        waitedMs: this.#parts.clock.now() - this.#phaseAt,
        limitMs: spec.recovery.within,
      },
    })
  }

  #noteFaults(): void {
    const { faults, engineErrors } = this.#parts.world.faults()
    const known = new Map(this.#record.faults.map((fault) => [fault.name, fault]))
    // Faults that were never armed keep their counts of 0.
    for (const fault of faults) known.set(fault.name, fault)
    this.#change({ faults: [...known.values()], engineErrors: engineErrors - this.#engineErrors })
  }

  /** Returns true when no call has ended for longer than the gate allows. */
  #isSilent(now: Millis): boolean {
    return now - this.#parts.meter.lastAt >= this.#record.spec.gate.missing
  }

  #detection(): Detection | undefined {
    const { firstEffectAt } = this.#parts.meter
    if (firstEffectAt === undefined) return undefined
    const first = this.#signs.find(({ at }) => at >= firstEffectAt)
    return {
      firstEffectAtMs: firstEffectAt - this.#beganAt,
      afterMs: first && first.at - firstEffectAt,
      sign: first?.sign,
    }
  }

  /** Adds a row to the samples when a row is due, and reports a tick once a second. */
  #sample(now: Millis, everyMs: Millis): void {
    if (now - this.#sampledAt >= everyMs) this.#takeSample(now)
    if (now - this.#toldAt < 1_000) return
    this.#toldAt = now
    void this.#parts.onChange(this.#record, 'tick')
  }

  /** Adds a row for the remaining time to the samples, before the measurement restarts. */
  #closeSample(now: Millis): void {
    if (now > this.#sampledAt) this.#takeSample(now)
  }

  /** Adds a row for the calls that have ended since the previous row. */
  #takeSample(now: Millis): void {
    const sinceMs = now - this.#sampledAt
    this.#sampledAt = now
    const { phase, stage, spec } = this.#record
    const arms = phase === 'stage' ? ['control', 'treatment'] : ['all']
    const taken = Object.fromEntries(arms.map((arm) => [arm, this.#parts.meter.take(arm, sinceMs)]))
    // Thresholds are learned from whole seconds only.
    if (phase === 'baseline' && sinceMs >= 1_000) this.#seconds.push(taken.all!.figures())
    const share = phase === 'stage' ? spec.stages[stage]!.share : 0
    this.#samples.add({ atMs: now - this.#beganAt, phase, share, injected: this.#newInjections() }, taken)
    this.#change({ samples: this.#samples.rows })
  }

  /** Returns the injections since the last call. */
  #newInjections(): number {
    const total = this.#parts.world.faults().faults.reduce((sum, { injected }) => sum + injected, 0)
    const added = Math.max(0, total - this.#injected)
    this.#injected = total
    return added
  }

  #decide(what: string, why: string): void {
    const { decisions } = this.#record
    if (decisions.length >= MAX_DECISIONS) return
    const atMs = Math.round(this.#parts.clock.now() - this.#beganAt)
    this.#change({ decisions: [...decisions, { atMs, what, why }] })
  }

  #change(change: Change): void {
    this.#record = { ...this.#record, ...change }
  }

  #step(): Promise<string | undefined> | undefined {
    return this.#parts.onChange(this.#record, 'step') ?? undefined
  }
}

const isClean = ({ armed, arms }: Pick<Proof, 'armed' | 'arms'>) => armed.length + arms.length === 0

/**
 * An estimated error ratio or p95 is right if off by at most this share of the estimate (`OFF`). An error ratio is also
 * right if off by at most `OFF_POINTS`, a share of calls.
 */
const OFF = 0.5
const OFF_POINTS = 0.01

function estimatesOf({ spec, state, detection, recovery, stages }: RunRecord): readonly Estimated[] {
  const { outcome, detect, recover, errorRatio, p95 } = spec.estimate
  const last = stages.at(-1)?.treatment
  const estimates: Estimated[] = []
  if (outcome !== undefined)
    estimates.push({ of: 'outcome', expected: outcome, found: state, isRight: outcome === state })
  const ofTime = (of: 'detect' | 'recover', expected: Millis | undefined, found: Millis | undefined) => {
    if (expected === undefined) return
    const words = found === undefined ? 'never' : roundedDuration(found)
    const isRight = found !== undefined && found <= expected
    estimates.push({ of, expected: formatDuration(expected), found: words, isRight })
  }
  ofTime('detect', detect, detection?.afterMs)
  ofTime('recover', recover, recovery?.recoveredAfterMs)
  const ofNumber = (of: 'errorRatio' | 'p95', metric: CallMetric, expected: number | undefined) => {
    if (expected === undefined) return
    const { unit } = subjects[metric]
    const found = last && metricIn(metric, last)
    const off = found === undefined ? Infinity : Math.abs(found - expected)
    estimates.push({
      of,
      expected: valueInWords(unit, expected),
      found: found === undefined ? 'no calls' : valueInWords(unit, found),
      isRight: off <= OFF * expected || (unit === 'share' && off <= OFF_POINTS),
    })
  }
  ofNumber('errorRatio', 'error_ratio', errorRatio)
  ofNumber('p95', 'p95', p95)
  return estimates
}
