import type { Attributes, HrTime, Span } from '@opentelemetry/api'
import type { CallRecord, FaultFate, InjectedFault } from '../../mesh/call.ts'
import { EVENT_ATTRIBUTES as A, EVENTS } from './spans.ts'

/** The faults of a call, dealt out as events to the spans of what they hit. */
export class FaultEvents {
  #left: readonly InjectedFault[]
  /** Of the faults that were applied. */
  readonly #fates = new Map<InjectedFault, FaultFate>()
  /** Of faults that hit earlier calls: what they made was kept, and is this call's answer. */
  readonly #others: FaultFate[]

  /**
   * Accounting names the faults, those that show in the answer first, and one fault may have hit several tries. The
   * answer is that of the last one, so the last one gets the first fate.
   */
  constructor({ faults = [], fates = [] }: Pick<CallRecord, 'faults' | 'fates'>) {
    this.#left = faults
    this.#others = [...fates]
    for (const fault of faults.toReversed()) {
      if (fault.status !== 'applied') continue
      const index = this.#others.findIndex(({ name }) => name === fault.name)
      const [fate] = index < 0 ? [] : this.#others.splice(index, 1)
      if (fate !== undefined) this.#fates.set(fault, fate)
    }
  }

  /** Adds those that hit the try of that number. */
  addToAttempt(span: Span, attempt: number, at: HrTime): void {
    const isHit = (fault: InjectedFault) => fault.side === 'upstream' && fault.attempt === attempt
    for (const fault of this.#left) if (isHit(fault)) this.#add(span, fault, at)
    this.#left = this.#left.filter((fault) => !isHit(fault))
  }

  /** Adds what belongs to the call as a whole, which is all that hit no try; to be called last. */
  addToCall(span: Span, at: HrTime): void {
    for (const fault of this.#left) this.#add(span, fault, at)
    for (const { name, type, fate } of this.#others)
      span.addEvent(EVENTS.fault, { [A.fault]: name, [A.faultType]: type, [A.faultFate]: fate }, at)
  }

  #add(span: Span, fault: InjectedFault, at: HrTime): void {
    const { name, type, side, status, attempt } = fault
    const attributes: Attributes = {
      [A.fault]: name,
      [A.faultType]: type,
      [A.faultSide]: side,
      [A.faultStatus]: status,
      [A.faultAttempt]: attempt,
    }
    const fate = this.#fates.get(fault)
    if (fate !== undefined) attributes[A.faultFate] = fate.fate
    span.addEvent(EVENTS.fault, attributes, at)
  }
}
