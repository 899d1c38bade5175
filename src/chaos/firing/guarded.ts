import type { Layer, Outcome } from '../../mesh/call.ts'

/**
 * Puts a fault's layer around the rest of the way such that a defect of the layer cannot break the call: then the
 * call goes on as if there were no fault. What was sent already is not sent again; its outcome is taken. `broke`
 * hears of the defect, and may give an outcome to end the call with.
 */
export function guarded(build: () => Layer, broke: (cause: unknown) => Promise<Outcome> | undefined): Layer {
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
