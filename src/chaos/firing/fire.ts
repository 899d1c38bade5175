import type { Call, Layer, Outcome, Service } from '../../mesh/call.ts'
import { resultOf } from '../../mesh/classify.ts'
import type { Journal } from '../journal/journal.ts'
import type { FiredShot } from './shot.ts'

interface FireParts {
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

/**
 * Puts a fault's layer around the rest of the way such that a defect of the layer cannot break the call: then the
 * call goes on as if there were no fault. What was sent already is not sent again; its outcome is taken. `broke`
 * hears of the defect, and may give an outcome to end the call with.
 */
function guarded(build: () => Layer, broke: (cause: unknown) => Promise<Outcome> | undefined): Layer {
  return (next) => (call) => {
    let sent: Promise<Outcome> | undefined

    const recover = (cause: unknown) => broke(cause) ?? sent ?? next(call)

    const judge = (cause: unknown): Promise<Outcome> =>
      // What rejects further in is no defect of the fault.
      sent === undefined ? recover(cause) : sent.then(() => recover(cause))

    try {
      return build()((forwarded) => {
        const outcome = attempt(() => next(forwarded))
        sent ??= outcome
        return outcome
      })(call).then(
        (outcome) => (isOutcome(outcome) ? outcome : judge(new Error('it gave no outcome'))),
        judge,
      )
    } catch (cause) {
      return judge(cause)
    }
  }
}

/** A promise, even of what throws. */
function attempt(send: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return send()
  } catch (cause) {
    return Promise.reject(cause)
  }
}

const isOutcome = (outcome: unknown): outcome is Outcome =>
  typeof outcome === 'object' && outcome !== null && 'kind' in outcome
