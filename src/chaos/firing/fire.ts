import type { Call, Layer, Outcome, Service } from '../../mesh/call.ts'
import { resultOf } from '../../mesh/classify.ts'
import type { Journal } from '../journal/journal.ts'
import { guarded } from './guarded.ts'
import type { FiredShot } from './shot.ts'

export interface FireParts {
  readonly journal: Journal
  /** What a defect of a shot's layer makes of the call; undefined: the call goes on without it. */
  readonly broke: (shot: FiredShot, cause: unknown) => Promise<Outcome> | undefined
}

/** Sends a call through shots, the first outermost; each lets go of its place when it is over or the caller leaves. */
export function fire(
  shots: readonly FiredShot[],
  next: Service,
  call: Call,
  { journal, broke }: FireParts,
): Promise<Outcome> {
  const leave = () => {
    for (const shot of shots) shot.leave()
  }
  call.signal.addEventListener('abort', leave)

  const end = (shot: FiredShot, outcome: Outcome | undefined) => {
    if (!shot.end(outcome === undefined ? undefined : resultOf(outcome))) return
    journal.finish(shot.entry)
  }

  const layerOf = (shot: FiredShot): Layer => {
    const { type, fault } = shot.armed
    const layer = guarded(
      () => type.layer(fault, shot),
      (cause) => {
        shot.entry.status = 'error'
        return broke(shot, cause)
      },
    )
    return (inner) => {
      const service = layer(inner)
      return (hit) => {
        shot.reached = true
        // A fault further out may have held the call for longer than this one was in force.
        if (shot.released.aborted) {
          shot.notApplicable('it had ended when the call came to it')
          return inner(hit)
        }
        return service(hit).then((outcome) => {
          end(shot, outcome)
          return outcome
        })
      }
    }
  }

  const over = (outcome: Outcome | undefined) => {
    call.signal.removeEventListener('abort', leave)
    for (const shot of shots) {
      if (!shot.reached) shot.notApplicable('a fault around it ended the call first')
      end(shot, outcome)
    }
  }

  const hit = shots.map(layerOf).reduceRight<Service>((inner, layer) => layer(inner), next)
  return hit(call).then(
    (outcome) => {
      over(outcome)
      return outcome
    },
    (defect: unknown) => {
      over(undefined)
      throw defect
    },
  )
}
