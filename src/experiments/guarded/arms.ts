import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import { isHit, resultOfCall, wentWrong } from '../../mesh/classify.ts'
import type { Clock } from '../../mesh/clock.ts'
import { createKeyedRandom } from '../../mesh/keyed-random.ts'
import { glob } from '../../mesh/match.ts'
import { rejectionsIn, type Slot } from '../../mesh/record.ts'
import type { ArmSettings } from '../../mesh/settings.ts'
import { taskOf } from '../../protocol/task.ts'
import { type Assignment, assigner } from '../assignment.ts'
import { armsOf, portionOf } from '../capacity.ts'
import type { ExperimentConfig } from '../agenda.ts'
import type { Experiments } from '../experiments.ts'
import { armName, type Experiment, experiment as schema } from '../schema.ts'
import { measuredUnit } from '../samples.ts'
import { Measured, type Meter } from './meter.ts'
import type { Spec } from './spec.ts'

/** The parts of the config's comparisons that a generation needs. */
type Assigning = Pick<Experiments, 'armsIn' | 'assignIn' | 'end' | 'unit'>

/** The arms of a guarded run. The treatment comes first, so a larger share moves no unit back to the control. */
export const ARMS = ['treatment', 'control'] as const

/** The parts of the current run that the assignment of calls needs. */
interface Guest {
  readonly meter: Meter
  /** The run as an experiment, which matches calls and assigns them. */
  readonly aim: Experiment
  /** The arms in force, with the split of the stage; undefined outside of stages. */
  readonly entry: Experiment | undefined
  /** The share of the treatment, in (0, 1), while arms are in force. */
  readonly share: number
}

/**
 * Assigns calls to the config's comparisons and to one guarded run. Without a run, a generation has only the arms of
 * the comparisons. The caller of `measure` ensures that no comparison could take a call of the run.
 */
export class GuardedArms implements Assigning {
  readonly unit = measuredUnit
  readonly #others: Assigning
  readonly #clock: Pick<Clock, 'now'>
  readonly #forget: (arms: readonly string[]) => void
  readonly #random = createKeyedRandom(0)
  readonly #retries: Pick<Slot<number>, 'of'>
  #anonymous = 0
  #guest: Guest | undefined

  /** `forget` makes policies forget these arms of an earlier run. `retries`: the retries of a call until now. */
  constructor(
    others: Assigning,
    clock: Pick<Clock, 'now'>,
    retries: Pick<Slot<number>, 'of'>,
    forget: (arms: readonly string[]) => void = () => undefined,
  ) {
    this.#retries = retries
    this.#others = others
    this.#clock = clock
    this.#forget = forget
  }

  /** The run as an experiment; undefined without a run. No other experiment may take the calls of the run. */
  get taken(): Experiment | undefined {
    return this.#guest?.aim
  }

  /** The arms in force, by their names outside the experiment. */
  get names(): readonly string[] {
    const entry = this.#guest?.entry
    return entry === undefined ? [] : ARMS.map((arm) => armName(entry.name, arm))
  }

  /** From the next generation on, the meter counts calls of the targets. */
  measure(spec: Spec, meter: Meter): void {
    this.#guest = { meter, aim: experimentOf(spec, 0.5), entry: undefined, share: 0 }
  }

  /** From the next generation on, calls of the targets are in arms. `share`: of the treatment. */
  split(spec: Spec, share: number): void {
    if (this.#guest === undefined) return
    if (this.#guest.entry === undefined) this.#forget(ARMS.map((arm) => armName(spec.name, arm)))
    this.#guest = { ...this.#guest, entry: experimentOf(spec, share), share }
  }

  /** Takes calls out of the arms at once; the meter still counts calls. */
  join(): void {
    if (this.#guest !== undefined) this.#guest = { ...this.#guest, entry: undefined }
  }

  clear(): void {
    this.#guest = undefined
  }

  armsIn(config: ExperimentConfig): Record<string, ArmSettings> {
    const others = this.#others.armsIn(config)
    const entry = this.#guest?.entry
    if (entry === undefined) return others
    const portion = portionOf(entry, [entry], Object.keys(config.mcpServers))
    return { ...others, ...armsOf([{ experiment: entry, portion }]) }
  }

  assignIn(config: ExperimentConfig): ((call: Call) => void) | undefined {
    const others = this.#others.assignIn(config)
    const guest = this.#guest
    if (guest === undefined) return others
    const { entry, meter, aim } = guest
    const assign = assigner(entry ?? aim)
    const isAimedAt = aimOf(aim)
    return (call) => {
      if (!isAimedAt(call)) return others?.(call)
      // A stage's generation may take calls for a moment after the rollback; such calls are in no arm.
      const now = this.#guest
      if (now === undefined || now.meter !== meter) return
      call.record.intent ??= taskOf(call)
      const found = now.entry === entry && entry !== undefined ? assign(call) : undefined
      const arm = found === undefined ? undefined : this.#armOf(found, guest)
      if (arm !== undefined && entry !== undefined) call.record.arm = armName(entry.name, arm)
      measuredUnit.note(
        call.record,
        meter.begin(arm ?? (now.entry === undefined ? 'all' : 'none'), () => this.#retries.of(call.record)),
      )
    }
  }

  /**
   * Returns the arm of an assigned call; undefined for an excluded call. Many agents without task and session may share
   * a tenant's name, so each of their calls is drawn separately.
   */
  #armOf(found: Assignment, { share, aim }: Guest): string | undefined {
    if (typeof found === 'string') return undefined
    if (!found.isFallback || !found.unit.startsWith('tenant ')) return found.name
    return this.#random(String(this.#anonymous++), aim.name) < share ? 'treatment' : 'control'
  }

  end(record: CallRecord, outcome: Outcome): void {
    const unit = measuredUnit.of(record)
    if (!(unit instanceof Measured)) return this.#others.end(record, outcome)
    const hit = isHit(record)
    if (hit && unit.arm === 'treatment') unit.meter.affected(unit.at, record.traceId)
    const result = resultOfCall(outcome, record)
    // A call given up by its agent counts with its time so far. The call counts as wrong if a fault hit it, because the
    // fault may be the reason. The same goes for an error that blames the caller.
    const isOfCaller = result === 'cancelled' || result === 'caller_error'
    unit.meter.end(
      unit,
      result === 'caller_error' && !hit
        ? undefined
        : {
            isWrong: wentWrong(outcome, record) || (isOfCaller && hit),
            isRejected: result === 'rejected',
            attempts: record.attempts,
            rejections: rejectionsIn(record, outcome),
            tookMs: this.#clock.now() - record.startedAt,
          },
    )
  }
}

/** Returns a run in the form of a configured experiment, for assignment and capacity. */
export function experimentOf({ name, targets, arms, assignBy }: Spec, share: number): Experiment {
  const { environment: _, ...match } = targets
  return schema.parse({
    name,
    arms: { treatment: arms.treatment, control: arms.control },
    split: { treatment: share, control: 1 - share },
    match,
    assignBy,
  })
}

function aimOf({ match }: Experiment): (call: Call) => boolean {
  const [server, tool, tenant] = [match.server, match.tool, match.tenant].map((held) => glob(held ?? '*'))
  return (call) => call.tool !== undefined && server!(call.server) && tool!(call.tool) && tenant!(call.tenant)
}
