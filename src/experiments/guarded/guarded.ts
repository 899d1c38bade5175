import { randomUUID } from 'node:crypto'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { Recent } from '../../units/recent.ts'
import type { Done } from '../experiments.ts'
import { type Rule, ruleInWords } from './gate.ts'
import { Lifecycle, type World } from './lifecycle.ts'
import { Meter } from './meter.ts'
import {
  type ApproverProof,
  blankRecord,
  isOver,
  type ProbeRow,
  type Proof,
  type RunRecord,
  type Targets,
} from './record.ts'
import { lengthOf, shapeOf, type Spec } from './spec.ts'
import { roundedDuration } from '../../units/duration.ts'

export interface RunStore {
  /** Replaces the run's earlier record. Rejects when the record cannot be written. */
  write(record: RunRecord): Promise<void>
  flush(): Promise<void>
}

/** A spec checked against the gateway's present state. */
export interface Survey {
  /** Why the spec may not run here and now; empty when it may. */
  readonly refusals: readonly string[]
  readonly doubts: readonly string[]
  readonly targets: Targets
  readonly hashes: RunRecord['hashes']
  readonly seed: string
}

export interface GuardedParts {
  readonly clock: Clock
  /** The store of runs; or why there is no store, and so no run can begin. */
  readonly journal: RunStore | { readonly problem: string }
  readonly survey: (spec: Spec) => Survey
  /** Returns a hash of everything a run depends on; a change of the hash ends the run. */
  readonly groundOf: (spec: Spec) => string
  readonly worldOf: (run: RunRecord, meter: Meter) => World
  /** Returns faults and arms still left from a run of an earlier process; none, unless something is wrong. */
  readonly proofOf: (run: RunRecord) => Omit<Proof, 'atMs' | 'tookMs' | 'troubled'>
  /** Names of allowed approvers; undefined: everybody except the requester. */
  readonly approvers: () => readonly string[] | undefined
  /** Whether persons have trusted keys, so that only a signature approves. Default: false. */
  readonly needsSignature?: boolean
  /** Whether the signature of the requester approves the run. Default: false. */
  readonly mayApproveOwn?: boolean
  /** The spec without secrets, to show and keep. */
  readonly withoutSecrets: (spec: Spec) => Spec
  /** Receives the record of each ended run. Must not throw. */
  readonly onOver?: (run: RunRecord) => void
  /** Receives events for operators. Must not throw. */
  readonly emit: (event: GuardedEvent) => void
}

export interface GuardedEvent {
  readonly type: 'asked' | 'approved' | 'began' | 'step' | 'rolled back' | 'ended' | 'journal failed'
  readonly name: string
  readonly state: string
  readonly reason: string
}

export interface Request {
  readonly by: string
  /** The approver's name, if the run needs approval or skips stages. */
  readonly approvedBy: string | undefined
  /** The first stage to play, from 0. */
  readonly firstStage: number
  /** The run's id; default: a new id. */
  readonly id?: string
  /** How the approver was proved; default: a name claimed with the control token. */
  readonly proof?: ApproverProof
  /** Returns further refusals, by the survey just before the run begins; nothing has been injected then. */
  readonly recheck?: (survey: Survey) => readonly string[]
}

/** The run that an approver saw. */
export interface ApprovedRun extends Required<Pick<Request, 'recheck'>> {
  readonly id: string
}

/** A preview of a run. Making a plan begins nothing. */
export interface Plan extends Survey {
  readonly name: string
  readonly shape: string
  readonly lengthMs: Millis
  readonly stages: readonly {
    readonly share: number
    readonly duration: Millis
    readonly isSkipped: boolean
  }[]
  readonly rules: readonly string[]
  readonly faults: readonly { readonly name: string; readonly type: string; readonly rate: number }[]
  /** Why the run would wait for approval; undefined when it may begin at once. */
  readonly waitsBecause: string | undefined
  readonly completedBefore: number
}

export type Asked =
  | { readonly ok: true; readonly run: RunRecord }
  | { readonly ok: false; readonly refusals: readonly string[] }

/** Maximum number of runs waiting for approval, and of experiments whose last run stays in memory. */
const MAX_PENDING = 16
const MAX_KEPT = 64

/** Maximum number of shapes whose completed runs are counted; the least recently run shapes are forgotten. */
const MAX_SHAPES = 1_000

const MAX_LISTENERS = 64

/** How long `close` waits for the journal, in milliseconds. */
const FLUSH_MS: Millis = 2_000

/** Pause before retrying to write the end of a run, in milliseconds. */
const AGAIN_MS: Millis = 30_000

/** Time between writes while only figures change, in milliseconds: a killed gateway loses this much. */
const WRITE_EVERY_MS: Millis = 5_000

/** After this number of completed runs of a shape, another run shows nothing new. */
const ENOUGH_RUNS = 3

/** A run whose beginning is being written. */
interface Beginning {
  readonly run: RunRecord
  /** Why the run must not begin after all. */
  stopped?: string
}

const noRefusals = (_: Survey): readonly string[] => []

/** The proof of an approver whose name came with the control token. */
const CLAIMED: ApproverProof = { proved: 'claimed' }

interface Current {
  readonly lifecycle: Lifecycle
  readonly ground: string
}

/**
 * The guarded runs of a gateway: one at a time, plus runs waiting for approval. A run belongs to the gateway, not to
 * its requester. Outlives all generations.
 */
export class GuardedExperiments {
  readonly #parts: GuardedParts
  /** Runs waiting for approval, by experiment. */
  readonly #pending = new Map<string, RunRecord>()
  /** The last run of each experiment, the latest last. */
  readonly #last = new Map<string, RunRecord>()
  readonly #completed = new Recent<number>(MAX_SHAPES)
  readonly #listeners = new Set<{ readonly name: string; readonly hear: (run: RunRecord) => void }>()
  #current: Current | undefined
  /** Last write of the current run, on the monotonic clock. */
  #writtenAt: Millis = -Infinity
  #beginning: Beginning | undefined
  readonly #closed = new Cancellation()
  /** Writes of ended runs that are still under way. */
  readonly #sealing = new Set<Promise<void>>()

  constructor(parts: GuardedParts) {
    this.#parts = parts
  }

  /** Takes over the runs of earlier processes; records unfinished runs as failed. */
  async recover(runs: readonly RunRecord[]): Promise<void> {
    for (const run of runs) {
      if (isOver(run)) {
        this.#keep(run)
        continue
      }
      const { clock, proofOf } = this.#parts
      const { atMs } = run.samples.at(-1) ?? {}
      const known =
        atMs === undefined
          ? ''
          : `; its record ends ${roundedDuration(atMs)} after its start, or slightly later`
      const where =
        run.state === 'pending_approval' ? 'it waited for approval' : `it was in its ${placeOf(run)}${known}`
      const failed: RunRecord = {
        ...run,
        state: 'failed',
        phase: 'over',
        reason: `the gateway ended while ${where}`,
        endedAt: clock.wall(),
        rollback: { ...proofOf(run), atMs: undefined, tookMs: undefined, troubled: [] },
      }
      await this.#write(failed)
      this.#keep(failed)
      this.#emit('ended', failed)
    }
  }

  /** Returns a preview of a run, with the refusals. Begins nothing. */
  plan(spec: Spec, request: Request): Plan {
    const survey = this.#parts.survey(spec)
    const { firstStage, approvedBy } = request
    const shape = shapeOf(spec)
    const own: string[] = []
    if ('problem' in this.#parts.journal)
      own.push(`the run could not be written to the journal: ${this.#parts.journal.problem}`)
    const running = this.#current?.lifecycle.record.name
    if (running !== undefined) own.push(`experiment "${running}" is running: only one runs at a time`)
    if (this.#beginning !== undefined)
      own.push('another experiment is about to begin: only one runs at a time')
    if (this.#pending.has(spec.name)) own.push(`experiment "${spec.name}" already waits for approval`)
    if (this.#pending.size >= MAX_PENDING)
      own.push(`${MAX_PENDING} experiments already wait for approval, the maximum`)
    if (firstStage >= spec.stages.length)
      own.push(`there is no stage ${firstStage + 1}: there are ${spec.stages.length}`)
    else if (firstStage > 0 && approvedBy === undefined && !this.needsSignature)
      own.push(`skipping stages needs an approver: give --approved-by NAME`)
    if (approvedBy !== undefined) own.push(...this.#disapproved(request))
    return {
      ...survey,
      refusals: [...survey.refusals, ...own],
      name: spec.name,
      shape,
      lengthMs: lengthOf(spec),
      stages: spec.stages.map((stage, index) => ({ ...stage, isSkipped: index < firstStage })),
      rules: spec.gate.rollbackOn.map((rule: Rule) => ruleInWords(rule)),
      faults: spec.faults.map(({ name, type, rate }) => ({ name, type, rate })),
      waitsBecause: approvedBy === undefined ? approvalReason(spec, firstStage) : undefined,
      completedBefore: this.#completed.get(shape) ?? 0,
    }
  }

  /** Whether persons have trusted keys, so that only a signature approves. */
  get needsSignature(): boolean {
    return this.#parts.needsSignature === true
  }

  /** Returns why `approvedBy` may not approve a request of `by`; empty when allowed. */
  #disapproved({ by, approvedBy = '', proof }: Request): string[] {
    if (this.needsSignature && proof?.proved !== 'key')
      return [
        `${approvedBy} is only a name: gateway.controlMcp.trust is set, so an approval needs a signature; run without an approver, then sign with \`breakwater experiment approve NAME --key FILE\``,
      ]
    const approvers = this.#parts.approvers()
    if (isSame(by, approvedBy) && !(proof?.proved === 'key' && this.#parts.mayApproveOwn === true))
      return [`${approvedBy} requests the run, and so cannot approve it`]
    if (approvers === undefined || approvers.some((name) => isSame(name, approvedBy))) return []
    return [`${approvedBy} may not approve the run: chaos.approvers has ${approvers.join(', ')}`]
  }

  /** Requests a run: the run begins at once, or waits for approval. */
  async run(spec: Spec, request: Request): Promise<Asked> {
    const plan = this.plan(spec, request)
    if (this.#closed.aborted) return { ok: false, refusals: ['the gateway is stopping'] }
    if (plan.refusals.length > 0) return { ok: false, refusals: plan.refusals }
    const run = this.#recordOf(spec, plan, request)
    this.#emit('asked', run)
    if (plan.waitsBecause === undefined) return this.#begin(run, spec, request.recheck)
    this.#pending.set(run.name, run)
    const problem = await this.#write(run)
    if (problem !== undefined) {
      this.#pending.delete(run.name)
      return { ok: false, refusals: [problem] }
    }
    // A race: an operator or the end of the gateway may have stopped the run during the write.
    if (this.#pending.get(run.name) !== run)
      return { ok: false, refusals: [this.#last.get(run.name)?.reason ?? 'it was stopped'] }
    this.#specs.set(run.id, { spec, recheck: request.recheck ?? noRefusals })
    this.#publish(run)
    return { ok: true, run }
  }

  /**
   * Approves a waiting run, and begins the run unless the gateway now refuses it. `only`: the run that the approver saw;
   * another run of the same name does not begin.
   */
  async approve(name: string, by: string, proof?: ApproverProof, only?: ApprovedRun): Promise<Asked> {
    const pending = this.#pending.get(name)
    const asked = pending && this.#specs.get(pending.id)
    if (pending === undefined || asked === undefined)
      return { ok: false, refusals: [`experiment "${name}" does not wait for approval`] }
    const { spec } = asked
    if (only !== undefined && only.id !== pending.id)
      return {
        ok: false,
        refusals: [`the approval is for the run ${only.id}, and the run ${pending.id} waits now`],
      }
    this.#pending.delete(name)
    const { firstStage, actor } = pending
    const plan = this.plan(spec, { by: actor, approvedBy: by, firstStage, ...(proof && { proof }) })
    if (plan.refusals.length > 0) {
      this.#pending.set(name, pending)
      return { ok: false, refusals: plan.refusals }
    }
    this.#specs.delete(pending.id)
    const { targets, hashes, seed } = plan
    const approved: RunRecord = {
      ...pending,
      targets,
      hashes,
      seed,
      approver: by,
      proof: approverProof(actor, by, proof),
      reason: `${by} approved it`,
    }
    this.#emit('approved', approved)
    const recheck = (survey: Survey) => [...asked.recheck(survey), ...(only?.recheck(survey) ?? [])]
    const begun = await this.#begin(approved, spec, recheck)
    if (begun.ok || this.#last.get(name)?.id === pending.id || this.#closed.aborted) return begun
    // The write failed, so the run waits as before; otherwise the run would be lost.
    this.#specs.set(pending.id, asked)
    this.#pending.set(name, pending)
    return begun
  }

  /** Ends the current run or a waiting run. */
  stop(name: string, by: string, why: string): Done {
    const pending = this.#pending.get(name)
    if (pending !== undefined) {
      this.#pending.delete(name)
      this.#specs.delete(pending.id)
      const reason = `${by} stopped it: ${why}`
      this.#over({ ...pending, state: 'aborted', phase: 'over', reason, endedAt: this.#parts.clock.wall() })
      return { ok: true }
    }
    if (this.#beginning?.run.name === name) {
      this.#beginning.stopped = `${by} stopped it: ${why}`
      return { ok: true }
    }
    const lifecycle = this.#running(name)
    if (lifecycle === undefined)
      return {
        ok: false,
        why: this.#last.has(name) ? `experiment "${name}" does not run` : `there is no experiment "${name}"`,
      }
    lifecycle.stop(by, why)
    return { ok: true }
  }

  /** Returns the latest run of each experiment, waiting and current runs included. */
  list(): readonly RunRecord[] {
    const current = this.#current?.lifecycle.record ?? this.#beginning?.run
    const now = [...this.#pending.values(), ...(current === undefined ? [] : [current])]
    const names = new Set(now.map(({ name }) => name))
    return [...[...this.#last.values()].filter(({ name }) => !names.has(name)), ...now]
  }

  get(name: string): RunRecord | undefined {
    const beginning = this.#beginning?.run.name === name ? this.#beginning.run : undefined
    return this.#running(name)?.record ?? beginning ?? this.#pending.get(name) ?? this.#last.get(name)
  }

  /** Returns the spec of a waiting run, secrets included; undefined for other runs. */
  specOf(name: string): Spec | undefined {
    return this.#specs.get(this.#pending.get(name)?.id ?? '')?.spec
  }

  /** Whether a run is under way or about to begin, so that no other run can begin. */
  get isBusy(): boolean {
    return this.#current !== undefined || this.#beginning !== undefined
  }

  get running(): string | undefined {
    return this.#current?.lifecycle.record.name
  }

  /**
   * Calls `hear` after each change of an experiment's runs. Returns a function that removes the listener; undefined
   * with too many listeners.
   */
  listen(name: string, hear: (run: RunRecord) => void): Cancel | undefined {
    if (this.#listeners.size >= MAX_LISTENERS) return undefined
    const listener = { name, hear }
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Call once another config is in force: ends the current run if the config changed a part the run depends on. */
  follow(): void {
    const current = this.#current
    if (current === undefined) return
    const { lifecycle, ground } = current
    if (this.#parts.groundOf(lifecycle.record.spec) === ground) return
    // Fails the run later, because the config is only just coming into force, and the rollback applies the config
    // again.
    this.#parts.clock.after(0, () =>
      lifecycle.fail(
        'a config change affects the run: its servers, its policies or the flag that allows faults',
      ),
    )
  }

  /** Records a sign at a server, such as `breaker memory/read_graph open`. */
  noticed(server: string, sign: string): void {
    this.#runAt(server)?.noticed(sign)
  }

  /** Records a probe of a server; a failed probe is also a sign. */
  probed(probe: Omit<ProbeRow, 'atMs'>): void {
    const lifecycle = this.#runAt(probe.server)
    lifecycle?.probed(probe)
    if (probe.reason !== undefined) lifecycle?.noticed(`probe of ${probe.server}: ${probe.reason}`)
  }

  killed(by: string, why: string): void {
    if (this.#beginning !== undefined) this.#beginning.stopped = `the kill switch stopped it: ${by}: ${why}`
    this.#current?.lifecycle.stop('the kill switch', `${by}: ${why}`)
  }

  /** Ends all runs. Resolves once all is rolled back and written, or after `FLUSH_MS` of waiting for the disk. */
  async close(): Promise<void> {
    this.#closed.abort('closed')
    for (const run of [...this.#pending.values()])
      this.#over({
        ...run,
        state: 'failed',
        phase: 'over',
        reason: 'the gateway was stopped while it waited for approval',
        endedAt: this.#parts.clock.wall(),
      })
    this.#pending.clear()
    this.#current?.lifecycle.fail('the gateway was stopped')
    if (!('flush' in this.#parts.journal)) return
    // A hanging disk must not keep the process alive: the next process records a run without a written end as failed.
    const limit = new Cancellation()
    const late = this.#parts.clock.sleep(FLUSH_MS, limit).catch(() => undefined)
    await Promise.race([Promise.all([...this.#sealing, this.#parts.journal.flush()]), late])
    limit.abort('written')
  }

  /** The specs of waiting runs, with secrets, and their checks just before the begin; by run id. */
  readonly #specs = new Map<string, { readonly spec: Spec } & Required<Pick<Request, 'recheck'>>>()

  #runAt(server: string): Lifecycle | undefined {
    const lifecycle = this.#current?.lifecycle
    return lifecycle?.record.targets.servers.some(({ name }) => name === server) === true
      ? lifecycle
      : undefined
  }

  #running(name: string): Lifecycle | undefined {
    const lifecycle = this.#current?.lifecycle
    return lifecycle?.record.name === name ? lifecycle : undefined
  }

  #recordOf(spec: Spec, { targets, hashes, seed, shape, waitsBecause }: Plan, request: Request): RunRecord {
    const { clock, withoutSecrets } = this.#parts
    return {
      format: 1,
      id: request.id ?? `${Math.floor(clock.wall()).toString(36)}-${randomUUID().slice(0, 8)}`,
      kind: 'guarded',
      name: spec.name,
      spec: withoutSecrets(spec),
      shape,
      hashes,
      seed,
      targets,
      actor: request.by,
      approver: request.approvedBy,
      proof:
        request.approvedBy === undefined
          ? request.proof
          : approverProof(request.by, request.approvedBy, request.proof),
      firstStage: request.firstStage,
      state: waitsBecause === undefined ? 'running' : 'pending_approval',
      phase: 'waiting',
      reason: waitsBecause ?? 'it is about to begin',
      requestedAt: clock.wall(),
      ...blankRecord(spec),
    }
  }

  /** Writes the beginning of a run to disk, then begins the run. */
  async #begin(run: RunRecord, spec: Spec, recheck = noRefusals): Promise<Asked> {
    const { clock, worldOf, groundOf } = this.#parts
    const beginning: Beginning = { run }
    this.#beginning = beginning
    const problem = await this.#write(run)
    this.#beginning = undefined
    if (problem !== undefined) return { ok: false, refusals: [problem] }
    // Races: during the write, the gateway, its config or an operator may have ruled out the run.
    const { stopped } = beginning
    const survey = this.#parts.survey(spec)
    const refusals = this.#closed.aborted
      ? ['the gateway is stopping']
      : [...survey.refusals, ...recheck(survey)]
    if (stopped !== undefined || refusals.length > 0) {
      const reason = stopped ?? refusals.join('; ')
      const state = stopped === undefined ? 'failed' : 'aborted'
      this.#over({ ...run, state, phase: 'over', reason, endedAt: clock.wall() })
      return { ok: false, refusals: [reason] }
    }
    const meter = new Meter(clock)
    const lifecycle = new Lifecycle({
      clock,
      meter,
      world: worldOf({ ...run, spec }, meter),
      record: run,
      onChange: (record, what) => this.#changed(record, what),
    })
    this.#current = { lifecycle, ground: groundOf(spec) }
    this.#emit('began', run)
    lifecycle.begin()
    return { ok: true, run: lifecycle.record }
  }

  #changed(record: RunRecord, what: 'step' | 'tick'): Promise<string | undefined> | undefined {
    if (isOver(record)) {
      this.#current = undefined
      this.#over(record)
      return undefined
    }
    this.#publish(record)
    const { clock } = this.#parts
    if (what === 'tick' && clock.now() - this.#writtenAt < WRITE_EVERY_MS) return undefined
    this.#writtenAt = clock.now()
    if (what === 'step') this.#emit(record.phase === 'recovery' ? 'rolled back' : 'step', record)
    return this.#write(record).then((problem) => {
      const lifecycle = this.#running(record.name)
      if (problem !== undefined && lifecycle?.record.id === record.id) lifecycle.fail(problem)
      return problem
    })
  }

  #over(record: RunRecord): void {
    const run = this.#withProposal(record)
    this.#keep(run)
    this.#emit('ended', run)
    this.#parts.onOver?.(run)
    this.#publish(run)
    const sealing: Promise<void> = this.#seal(run).finally(() => this.#sealing.delete(sealing))
    this.#sealing.add(sealing)
  }

  /** Writes the end of a run. Retries after disk errors, or the next process would take the run for interrupted. */
  async #seal(run: RunRecord): Promise<void> {
    const { clock } = this.#parts
    while ((await this.#write(run)) !== undefined && !this.#closed.aborted)
      await clock.sleep(AGAIN_MS, this.#closed).catch(() => undefined)
  }

  #withProposal(run: RunRecord): RunRecord {
    if (run.state !== 'completed') return run
    const count = (this.#completed.get(run.shape) ?? 0) + 1
    return count < ENOUGH_RUNS ? run : { ...run, proposal: proposalFor(run, count) }
  }

  #keep(run: RunRecord): void {
    if (run.state === 'completed') this.#completed.set(run.shape, (this.#completed.get(run.shape) ?? 0) + 1)
    this.#last.delete(run.name)
    this.#last.set(run.name, run)
    for (const name of this.#last.keys()) {
      if (this.#last.size <= MAX_KEPT) break
      this.#last.delete(name)
    }
  }

  /** Returns why a record could not be written; undefined when written. */
  async #write(run: RunRecord): Promise<string | undefined> {
    const { journal } = this.#parts
    if ('problem' in journal) return journal.problem
    try {
      await journal.write(run)
      return undefined
    } catch (error) {
      const problem = `the run could not be written to the journal: ${(error as Error).message}`
      this.#parts.emit({ type: 'journal failed', name: run.name, state: run.state, reason: problem })
      return problem
    }
  }

  #publish(run: RunRecord): void {
    for (const { name, hear } of this.#listeners) if (name === run.name) hear(run)
  }

  #emit(type: GuardedEvent['type'], { name, state, reason }: RunRecord): void {
    this.#parts.emit({ type, name, state, reason })
  }
}

const placeOf = ({ phase, stage }: RunRecord): string =>
  phase === 'stage' ? `stage ${stage + 1}` : phase === 'waiting' ? 'beginning' : phase

/** Largest share of the treatment without approval: in the first stage, and in later stages. */
const MOST_FIRST = 0.25
const MOST_LATER = 0.5

/** Returns why a run needs approval; undefined when it needs none. */
function approvalReason({ approval, stages }: Spec, firstStage: number): string | undefined {
  if (approval === 'required') return 'it waits until somebody approves it'
  if (firstStage > 0) return 'it waits until somebody approves it: it skips stages'
  const wide = stages.findIndex(({ share }, index) => share > (index === 0 ? MOST_FIRST : MOST_LATER))
  if (wide < 0) return undefined
  const [share, most] = [stages[wide]!.share, wide === 0 ? MOST_FIRST : MOST_LATER]
  return `it waits until somebody approves it: stage ${wide + 1} has ${Math.round(share * 100)}% of the calls; without approval, at most ${most * 100}% are allowed`
}

/** Returns a proposal for another run, because repetitions of a passing shape show nothing new. */
function proposalFor({ spec }: RunRecord, count: number): string {
  const widest = Math.max(...spec.stages.map(({ share }) => share))
  const wider =
    widest < 0.9
      ? `widen the radius (its last stage has ${Math.round(widest * 100)}% of the calls)`
      : 'aim at more servers'
  const types = [...new Set(spec.faults.map(({ type }) => type))]
  const other = types.length === 0 ? 'add faults' : `inject another fault than ${types.join(', ')}`
  return `${count} runs of the same shape were completed: another run shows nothing new. Either ${wider}, or ${other}.`
}

/** Whether two names are the same to a reader. */
export const isSame = (one: string, other: string): boolean => asRead(one) === asRead(other)

/** Returns the proof of an approver, marked when the approver also requested the run. */
const approverProof = (by: string, approver: string, proof = CLAIMED): ApproverProof =>
  isSame(by, approver) ? { ...proof, self: true } : proof

/** Returns a name as people read it: without invisible characters, wide letters and case. Lookalike letters differ. */
const asRead = (name: string): string =>
  name
    .normalize('NFKC')
    .replace(/\p{Cf}/gu, '')
    .trim()
    .toLowerCase()
