import type { Call, Layer, Outcome } from '../../../mesh/call.ts'
import { resultIn, type Shot } from '../../fault.ts'

/** A layer that has another server answer; its answer counts as corrupted. */
export function sending(shot: Shot, server: string, readdress: (call: Call) => Call): Layer {
  return (next) => (call) => {
    const sent = call.server === server ? undefined : shot.world.sendTo(readdress(call), server)
    if (sent === undefined) {
      shot.notApplicable(`there is no other server ${server}`)
      return next(call)
    }
    shot.note({ server })
    return unlessReleased(shot, sent).then((outcome) => {
      if (outcome === undefined) return next(call)
      const result = resultIn(outcome)
      return result === undefined ? outcome : shot.change(outcome, result)
    })
  }
}

/** What comes, or undefined as soon as the shot is released: then nobody may wait for the wrong server any more. */
function unlessReleased(shot: Shot, coming: Promise<Outcome>): Promise<Outcome | undefined> {
  const { released } = shot
  return new Promise((resolve, reject) => {
    const letGo = () => resolve(undefined)
    if (released.aborted) return letGo()
    released.addEventListener('abort', letGo, { once: true })
    coming.finally(() => released.removeEventListener('abort', letGo)).then(resolve, reject)
  })
}
