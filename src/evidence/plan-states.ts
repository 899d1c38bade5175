import { z } from 'zod'
import { GRADED_RUNS, gradeOf, type Graded } from './grade.ts'
import { dueAt } from './questions.ts'
import { runSummary, type RunSummary } from './summary.ts'
import { type Reason, reasonNames, type Verdict, verdicts } from './verdict-names.ts'

/** Most plans with a state of their own. */
export const MOST_PLANS = 200

const { kind, name, at, tookMs, faults, rto, everyMs, state, verdict, reasons } = runSummary.shape

/** The parts of a summary that a plan's state depends on. */
const judgedRun = z.object({
  format: runSummary.shape.format,
  ...{ kind, name, at, tookMs, rto, everyMs, state, verdict, reasons },
  faults: z.array(z.object({ applied: faults.element.shape.applied })),
})

type JudgedRun = z.output<typeof judgedRun>

/** Counts of ended runs. */
export interface RunCounts {
  /** Undefined: all plans without a state of their own. */
  readonly plan: string | undefined
  readonly kind: string
  readonly verdicts: Readonly<Record<Verdict, number>>
  /** Runs without evidence by reason; a run with several reasons counts for each. */
  readonly reasons: Readonly<Partial<Record<Reason, number>>>
}

/** The state of a plan. Times `…At` in milliseconds since the Unix epoch. */
export interface PlanState extends RunCounts {
  readonly plan: string
  readonly last: Pick<RunSummary, 'verdict' | 'state' | 'reasons'> & {
    readonly endedAt: number
    /** Injections that took effect, over all faults. */
    readonly applied: number
  }
  /** The times of the last run that is evidence; null: promised or measured none, or no run is evidence. */
  readonly rto: RunSummary['rto']
  /** Over the last `GRADED_RUNS` runs. */
  readonly grade: Graded
  /** Undefined for a plan that does not say how often it is due. */
  readonly dueAt: number | undefined
}

/**
 * The states of the plans that ran last, `MOST_PLANS` at most. The size of a state does not depend on the
 * number of runs. A plan that does not fit any more leaves; its counts are kept, together with those of all other plans
 * that left.
 */
export class PlanStates {
  /** By kind and name, the plan that has not run for the longest time first. */
  readonly #plans = new Map<string, Plan>()
  /** The counts of plans that left, by kind. */
  readonly #left = new Map<string, Counts>()

  /** Adds an ended run; call in the order of the index. Ignores runs of unknown formats. */
  add(run: unknown): void {
    const read = judgedRun.safeParse(run)
    if (!read.success) return
    const { kind, name } = read.data
    const key = `${kind} ${name}`
    const plan = this.#plans.get(key) ?? new Plan(read.data)
    plan.add(read.data)
    this.#plans.delete(key)
    this.#plans.set(key, plan)
    if (this.#plans.size <= MOST_PLANS) return
    const [oldest, { counts }] = this.#plans.entries().next().value!
    this.#plans.delete(oldest)
    const left = this.#left.get(counts.kind) ?? new Counts(undefined, counts.kind)
    left.merge(counts)
    this.#left.set(counts.kind, left)
  }

  get plans(): readonly PlanState[] {
    return [...this.#plans.values()].map((plan) => plan.state)
  }

  /** The counts of plans that left: one entry for each kind. */
  get left(): readonly RunCounts[] {
    return [...this.#left.values()]
  }
}

class Counts implements RunCounts {
  readonly plan: string | undefined
  readonly kind: string
  readonly verdicts = Object.fromEntries(verdicts.map((one) => [one, 0])) as Record<Verdict, number>
  readonly reasons: Partial<Record<Reason, number>> = {}

  constructor(plan: string | undefined, kind: string) {
    this.plan = plan
    this.kind = kind
  }

  count({ verdict, reasons }: JudgedRun): void {
    this.verdicts[verdict]++
    for (const reason of reasons) this.reasons[reason] = (this.reasons[reason] ?? 0) + 1
  }

  merge(other: RunCounts): void {
    for (const verdict of verdicts) this.verdicts[verdict] += other.verdicts[verdict]
    for (const reason of reasonNames) {
      const runs = other.reasons[reason]
      if (runs !== undefined) this.reasons[reason] = (this.reasons[reason] ?? 0) + runs
    }
  }
}

class Plan {
  readonly counts: Counts
  readonly #name: string
  readonly #firstAt: number
  #last: JudgedRun
  #lastEvidence: JudgedRun | undefined
  #recent: Pick<JudgedRun, 'verdict' | 'rto'>[] = []
  #state: PlanState | undefined

  constructor(first: JudgedRun) {
    this.counts = new Counts(first.name, first.kind)
    this.#name = first.name
    this.#firstAt = first.at
    this.#last = first
  }

  add(run: JudgedRun): void {
    this.counts.count(run)
    if (run.at >= this.#last.at) this.#last = run
    // A clock that went back hides no later test.
    if (run.verdict !== 'no evidence' && run.at >= (this.#lastEvidence?.at ?? 0)) this.#lastEvidence = run
    this.#recent.push({ verdict: run.verdict, rto: run.rto })
    if (this.#recent.length > GRADED_RUNS) this.#recent.shift()
    this.#state = undefined
  }

  /** The state after the last run. Made at the first reading: an index may have many runs of a plan. */
  get state(): PlanState {
    return (this.#state ??= this.#made())
  }

  #made(): PlanState {
    const { kind, verdicts, reasons } = this.counts
    const { verdict, state, at, tookMs, everyMs, faults, reasons: ofLast } = this.#last
    const { at: lastAt, rto = { promisedMs: null, measuredMs: null } } = this.#lastEvidence ?? {}
    return {
      plan: this.#name,
      kind,
      verdicts,
      reasons,
      last: {
        verdict,
        state,
        reasons: ofLast,
        endedAt: at + tookMs,
        applied: faults.reduce((sum, { applied }) => sum + applied, 0),
      },
      rto,
      grade: gradeOf(this.#recent),
      dueAt: everyMs === null ? undefined : dueAt({ everyMs, lastAt, firstAt: this.#firstAt }),
    }
  }
}
