import type { Attributes, HrTime, Span } from '@opentelemetry/api'
import type { CallRecord, InjectedFault } from '../../mesh/call.ts'
import { EVENT_ATTRIBUTES as A, EVENTS } from './spans.ts'

/** The faults of a call, dealt out as events to the spans of what they hit. */
export class FaultEvents {
  /** With those that hit earlier calls: what they made was kept, and is this call's answer. */
  readonly #left: Set<InjectedFault>
  readonly #fates: ReadonlyMap<InjectedFault, string>
  readonly #own: ReadonlySet<InjectedFault>

  constructor({ faults = [], fates = [] }: Pick<CallRecord, 'faults' | 'fates'>) {
    this.#own = new Set(faults)
    this.#fates = new Map(fates.map(({ fault, fate }) => [fault, fate]))
    this.#left = new Set([...faults, ...this.#fates.keys()])
  }

  /** Adds those that hit the try of that number. */
  addToAttempt(span: Span, attempt: number, at: HrTime): void {
    for (const fault of this.#own)
      if (fault.side === 'upstream' && fault.attempt === attempt && this.#left.delete(fault))
        this.#add(span, fault, at)
  }

  /** Adds what belongs to the call as a whole, which is all that hit no try of it; to be called last. */
  addToCall(span: Span, at: HrTime): void {
    for (const fault of this.#left) this.#add(span, fault, at)
  }

  #add(span: Span, fault: InjectedFault, at: HrTime): void {
    const { name, type, side, status, attempt } = fault
    const attributes: Attributes = { [A.fault]: name, [A.faultType]: type }
    if (this.#own.has(fault)) {
      attributes[A.faultSide] = side
      attributes[A.faultStatus] = status
      attributes[A.faultAttempt] = attempt
    }
    const fate = this.#fates.get(fault)
    if (fate !== undefined) attributes[A.faultFate] = fate
    span.addEvent(EVENTS.fault, attributes, at)
  }
}
