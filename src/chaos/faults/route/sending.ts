import type { Call, Layer, Outcome } from '../../../mesh/call.ts'
import { resultIn, type Shot } from '../../fault.ts'
import { firstOf } from '../shared/first-of.ts'

/** A layer that has another server answer; its answer counts as corrupted. */
export function sending(shot: Shot, server: string, readdress: (call: Call) => Call): Layer {
  function corrupted(outcome: Outcome): Outcome {
    const result = resultIn(outcome)
    return result === undefined ? outcome : shot.change(outcome, result)
  }

  return (next) => (call) => {
    const sent = call.server === server ? undefined : shot.world.sendTo(readdress(call), server)
    if (sent === undefined) {
      shot.notApplicable(`there is no other server ${server}`)
      return next(call)
    }
    shot.note({ server })
    // Once it is released, nobody may wait for the wrong server any more.
    return firstOf(sent, shot.released).then(() =>
      shot.released.aborted ? next(call) : sent.then(corrupted),
    )
  }
}
