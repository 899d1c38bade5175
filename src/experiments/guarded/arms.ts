import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import { isHit, resultOfCall, wentWrong } from '../../mesh/classify.ts'
import type { Clock } from '../../mesh/clock.ts'
import { createKeyedRandom } from '../../mesh/keyed-random.ts'
import { glob } from '../../mesh/match.ts'
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

/** The effect of the config's comparisons on calls, for a generation. */
type Assigning = Pick<Experiments, 'armsIn' | 'assignIn' | 'end' | 'unit'>

/** The two arms of a guarded run. The treatment comes first: so a larger share of it moves nobody back to the control. */
export const ARMS = ['treatment', 'control'] as const

/** The run that is under way, as far as calls are concerned. */
interface Guest {
  readonly meter: Meter
  /** The calls that it is about, and what they are assigned by. */
  readonly aim: Experiment
  /** Its arms while they are in, with the split of the stage. */
  readonly entry: Experiment | undefined
  /** The share of the treatment, in (0, 1), while the arms are in. */
  readonly share: number
}

/**
 * The effect of experiments on calls: the comparisons of the config, and beside them one guarded run. While there is no run, a
 * generation has the arms of the comparisons and no others. A run takes no calls that a comparison could take: the caller
 * that begins the run ensures this.
 */
export class GuardedArms implements Assigning {
  readonly unit = measuredUnit
  readonly #others: Assigning
  readonly #clock: Pick<Clock, 'now'>
  readonly #forget: (arms: readonly string[]) => void
  readonly #random = createKeyedRandom(0)
  #anonymous = 0
  #guest: Guest | undefined

  /** `forget` has policies forget what they remember of arms, of an earlier run. */
  constructor(
    others: Assigning,
    clock: Pick<Clock, 'now'>,
    forget: (arms: readonly string[]) => void = () => undefined,
  ) {
    this.#others = others
    this.#clock = clock
    this.#forget = forget
  }

  /** The run, as an experiment whose calls no other may take; undefined while there is none. */
  get taken(): Experiment | undefined {
    return this.#guest?.aim
  }

  /** The arms that calls are assigned to now, as they are known outside of their experiment. */
  get names(): readonly string[] {
    const entry = this.#guest?.entry
    return entry === undefined ? [] : ARMS.map((arm) => armName(entry.name, arm))
  }

  /** From the next generation on, calls of the targets are told to the meter. */
  measure(spec: Spec, meter: Meter): void {
    this.#guest = { meter, aim: experimentOf(spec, 0.5), entry: undefined, share: 0 }
  }

  /** From the next generation on, calls of the targets are in arms, and so many of them the treatment. */
  split(spec: Spec, share: number): void {
    if (this.#guest === undefined) return
    if (this.#guest.entry === undefined) this.#forget(ARMS.map((arm) => armName(spec.name, arm)))
    this.#guest = { ...this.#guest, entry: experimentOf(spec, share), share }
  }

  /** From now on no call is in an arm; they are measured still. */
  join(): void {
    if (this.#guest !== undefined) this.#guest = { ...this.#guest, entry: undefined }
  }

  /** From now on nothing is measured. */
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
      // A generation that was made for a stage may take calls for a moment after the rollback: they are in no arm by then.
      const now = this.#guest
      if (now === undefined || now.meter !== meter) return
      call.record.intent ??= taskOf(call)
      const found = now.entry === entry && entry !== undefined ? assign(call) : undefined
      const arm = found === undefined ? undefined : this.#armOf(found, guest)
      if (arm !== undefined && entry !== undefined) call.record.arm = armName(entry.name, arm)
      measuredUnit.note(call.record, meter.begin(arm ?? (now.entry === undefined ? 'all' : 'none')))
    }
  }

  /** Agents without a task and a session may be many behind one name: each of their calls is drawn by itself. */
  #armOf(found: Assignment, { share, aim }: Guest): string | undefined {
    if (typeof found === 'string') return undefined
    if (!found.isFallback || !found.unit.startsWith('tenant ')) return found.name
    return this.#random(String(this.#anonymous++), aim.name) < share ? 'treatment' : 'control'
  }

  /** A tool call has ended: it may have been measured, or in an arm. */
  end(record: CallRecord, outcome: Outcome): void {
    const unit = measuredUnit.of(record)
    if (!(unit instanceof Measured)) return this.#others.end(record, outcome)
    const hit = isHit(record)
    if (hit && unit.arm === 'treatment') unit.meter.affected(unit.at, record.traceId)
    const result = resultOfCall(outcome, record)
    // One that its agent gave up is as slow as that; where a fault had hit it, that is why.
    const isGivenUp = result === 'cancelled'
    unit.meter.end(
      unit,
      result === 'caller_error'
        ? undefined
        : {
            isWrong: wentWrong(outcome, record) || (isGivenUp && hit),
            isRejected: result === 'rejected',
            attempts: record.attempts,
            tookMs: this.#clock.now() - record.startedAt,
          },
    )
  }
}

/** A run as an experiment of the config would be: what shares calls out and divides capacity knows no other. */
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
