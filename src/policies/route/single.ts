import { askedMs } from '../../mesh/asking.ts'
import type { Layer } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Feasibility } from './feasibility.ts'
import type { Replica } from './replica.ts'
import type { Scores } from './scores.ts'

/** The way to a server with one replica: there is nothing to choose, only something to learn. */
export function toSingle(replica: Replica, scores: Scores, feasibility: Feasibility, clock: Clock): Layer {
  const { load } = replica
  return (next) => (call) => {
    const { record } = call
    const begun = clock.now()
    const leftMs = feasibility.leftMs(call, begun)
    if (leftMs !== undefined && !feasibility.fits(replica, leftMs, begun)) {
      record.infeasible = true
      const refusal = feasibility.refuse(replica, leftMs, begun)
      if (refusal !== undefined) return Promise.resolve(refusal)
    }
    const askedBefore = askedMs(record, begun)
    const answered = next(call)
    load.inFlight++
    return answered.then(
      (outcome) => {
        const now = clock.now()
        load.inFlight--
        scores.note(replica, call, outcome, now - begun - (askedMs(record, now) - askedBefore), now)
        return outcome
      },
      (defect: unknown) => {
        load.inFlight--
        throw defect
      },
    )
  }
}
