import { askedMs } from '../../mesh/asking.ts'
import { derive, type Call, type Layer, type Outcome, type Service } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Scope } from '../../mesh/policy.ts'
import type { Chooser } from './chooser.ts'
import type { Feasibility } from './feasibility.ts'
import type { Replica } from './replica.ts'
import type { Scores } from './scores.ts'

export interface AmongParts {
  readonly replicas: readonly Replica[]
  readonly chooser: Chooser
  readonly scores: Scores
  readonly feasibility: Feasibility
  readonly clock: Clock
  /** The replica that holds a caller's state; undefined: any will do. */
  readonly home: Scope['home'] | undefined
}

const NONE: readonly number[] = []

/** The way to a server with several replicas. */
export function toOneAmong({ replicas, chooser, scores, feasibility, clock, home }: AmongParts): Layer {
  /** The replica that the call has to go to, if it can be used. */
  function boundTo(call: Call, now: Millis): Replica | undefined {
    if (call.replica !== undefined) return replicas[call.replica]
    const at = home?.(call.caller)
    const replica = at === undefined ? undefined : replicas[at]
    return replica?.load.isEjected(now) === true ? undefined : replica
  }

  function route(next: Service, call: Call): Promise<Outcome> {
    const now = clock.now()
    const bound = boundTo(call, now)
    let to = (bound ?? chooser.choose(call, NONE, now)) as Replica
    const leftMs = feasibility.leftMs(call, now)
    if (leftMs !== undefined && !feasibility.fits(to, leftMs, now)) {
      const better = bound === undefined ? chooser.chooseFitting(feasibility, leftMs, now) : undefined
      if (better === undefined) {
        call.record.infeasible = true
        const refusal = feasibility.refuse(to, leftMs, now)
        if (refusal !== undefined) return Promise.resolve(refusal)
      } else to = better
    }
    return send(next, call, to, NONE, now)
  }

  function send(
    next: Service,
    call: Call,
    to: Replica,
    tried: readonly number[],
    begun: Millis,
  ): Promise<Outcome> {
    const { load, index } = to
    const { record } = call
    const before = record.replica
    const askedBefore = askedMs(record, begun)
    // The transport writes it too, but not when it finds no way to the replica.
    record.replica = index
    const answered = next(derive(call, { replica: index }))
    load.inFlight++
    return answered.then(
      (outcome) => {
        const now = clock.now()
        load.inFlight--
        if (outcome.kind !== 'rejected' || outcome.by !== 'breaker') {
          scores.note(to, call, outcome, now - begun - (askedMs(record, now) - askedBefore), now)
          return outcome
        }
        record.replica = before
        if (call.replica !== undefined || call.signal.aborted) return outcome
        const closed = [...tried, index]
        const other = chooser.choose(call, closed, now)
        return other === undefined ? outcome : send(next, call, other, closed, now)
      },
      (defect: unknown) => {
        load.inFlight--
        throw defect
      },
    )
  }

  return (next) => (call) => route(next, call)
}
