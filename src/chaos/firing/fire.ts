import type { Call, Layer, Outcome, Service } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { resultOf } from '../../mesh/classify.ts'
import type { Journal } from '../journal/journal.ts'
import { type AppliedInjection, StandInAttempt } from './injection.ts'

interface FireParts {
  readonly journal: Journal
  /**
   * Called when an injection's layer throws. Returns the outcome of the call; undefined when the call continues without
   * the injection.
   */
  readonly broke: (injection: AppliedInjection, cause: unknown) => Promise<Outcome> | undefined
}

/**
 * Sends a call through injections, the first outermost, and returns the outcome. Each injection stops counting against
 * `maxConcurrent` when it is over or the call aborts.
 */
export function fire(
  injections: readonly AppliedInjection[],
  next: Service,
  call: Call,
  { journal, broke }: FireParts,
): Promise<Outcome> {
  const attempt = attemptOf(injections)
  const leave = () => {
    for (const injection of injections) injection.leave()
  }
  call.signal.addEventListener('abort', leave)

  const end = (injection: AppliedInjection, outcome: Outcome | undefined) => {
    if (!injection.end(outcome === undefined ? undefined : resultOf(outcome))) return
    journal.finish(injection.entry)
  }

  const layerOf = (injection: AppliedInjection): Layer => {
    const { type, fault } = injection.armed
    const layer = contained(
      () => type.layer(fault, injection),
      (cause) => {
        injection.notReached('the fault broke down')
        injection.entry.status = 'error'
        return broke(injection, cause)
      },
    )
    return (inner) => {
      const errors = new Set<GatewayError>()
      const service = layer((forwarded) =>
        inner(forwarded).then((outcome) => {
          if (outcome.kind !== 'answered') errors.add(outcome.error)
          return outcome
        }),
      )
      return (hit) => {
        // An outer fault may have held the call until this fault ended.
        if (injection.released.aborted) {
          injection.notReached('the fault had ended when the call reached it')
          return inner(hit)
        }
        return service(hit).then((outcome) => {
          if (outcome.kind !== 'answered' && !errors.has(outcome.error)) injection.madeError = true
          end(injection, outcome)
          return outcome
        })
      }
    }
  }

  const over = (outcome: Outcome | undefined) => {
    call.signal.removeEventListener('abort', leave)
    for (const injection of injections) end(injection, outcome)
    if (outcome !== undefined) attempt?.end(call, outcome)
  }

  const toServer = attempt?.before(next) ?? next
  const hit = injections.map(layerOf).reduceRight<Service>((inner, layer) => layer(inner), toServer)
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
 * Returns the record of the attempt that these injections may hold or end; undefined on side client, where there is no
 * attempt.
 */
function attemptOf(injections: readonly AppliedInjection[]): StandInAttempt | undefined {
  const [first] = injections
  if (first?.side !== 'upstream') return undefined
  const attempt = new StandInAttempt(first.faultEnvironment)
  for (const injection of injections) injection.attempt = attempt
  return attempt
}

/**
 * Returns a layer that contains bugs in a fault's layer: after a bug, the call continues without the fault. A request
 * already sent is not sent again; its outcome is used. `broke` is called with the bug, and may return an outcome that
 * ends the call.
 */
function contained(build: () => Layer, broke: (cause: unknown) => Promise<Outcome> | undefined): Layer {
  return (next) => (call) => {
    let sent: Promise<Outcome> | undefined

    const recover = (cause: unknown) => broke(cause) ?? sent ?? next(call)

    const judge = (cause: unknown): Promise<Outcome> =>
      // When `next` itself has rejected, this rejects too: the fault has no bug.
      sent === undefined ? recover(cause) : sent.then(() => recover(cause))

    try {
      return build()((forwarded) => {
        const outcome = attempt(() => next(forwarded))
        sent ??= outcome
        return outcome
      })(call).then(
        (outcome) => (isOutcome(outcome) ? outcome : judge(new Error('the fault gave no outcome'))),
        judge,
      )
    } catch (cause) {
      return judge(cause)
    }
  }
}

/** Runs `send`; turns a throw into a rejection. */
function attempt(send: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return send()
  } catch (cause) {
    return Promise.reject(cause)
  }
}

const isOutcome = (outcome: unknown): outcome is Outcome =>
  typeof outcome === 'object' && outcome !== null && 'kind' in outcome
