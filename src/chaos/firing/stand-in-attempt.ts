import type { Call, Outcome, Service } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { FaultEnvironment } from '../fault.ts'

/**
 * An attempt that faults hold or end before it comes to the server. Whoever looks at it, the agent by its error or those who
 * suspect servers, has to see what they would see of a real one: so it is counted, and sent or not, as the outcome says.
 */
export class StandInAttempt {
  readonly #environment: Pick<FaultEnvironment, 'beginAttempt' | 'suspect'>
  /** Whether it stands in the record of its call. */
  #isCounted = false
  #cameThrough = false
  /** How the server's part of it failed, if it did. No more of it is kept: this lives as long as the journal has its entry. */
  #realError: GatewayError | undefined

  constructor(environment: Pick<FaultEnvironment, 'beginAttempt' | 'suspect'>) {
    this.#environment = environment
  }

  /** A fault holds it back: to everybody else it is with a server that is slow, or if it was not `sent`, on the way there. */
  hold(call: Call, sent: boolean): void {
    this.#begin(call, sent)
  }

  /** The way to the server, on which the attempt becomes a real one. */
  before(next: Service): Service {
    return (call) => {
      // The transport counts what comes to it.
      if (this.#isCounted) call.record.attempts--
      this.#isCounted = false
      this.#cameThrough = true
      return next(call).then((outcome) => {
        this.#realError = outcome.kind === 'failed' ? outcome.error : undefined
        return outcome
      })
    }
  }

  /** It has ended, with the outcome that faults gave it. */
  end(call: Call, outcome: Outcome): void {
    const error = outcome.kind === 'answered' ? undefined : outcome.error
    this.#begin(call, error?.sent ?? true)
    if (error !== undefined && error !== this.#realError) this.#environment.suspect(call, error)
  }

  #begin(call: Call, sent: boolean): void {
    if (this.#isCounted || this.#cameThrough) return
    this.#isCounted = this.#environment.beginAttempt(call, sent)
  }
}
