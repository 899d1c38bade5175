import type { Call, Message, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { resultOf } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { within } from '../failure.ts'
import { ownCall } from '../own-call.ts'
import type { UpstreamSession } from '../upstream.ts'
import { SessionState } from './session-state.ts'

interface RememberedTerms {
  readonly server: string
  readonly clock: Clock
  readonly log: Log
}

/** How long a server may take to accept the restored state, in milliseconds; calls wait this long. */
const TELLING_MS: Millis = 5_000

/**
 * A session that ends with its process or stream. The caller's next session restores the subscriptions and the log
 * level.
 */
export class RememberedSession implements UpstreamSession {
  readonly #session: UpstreamSession
  readonly #state: SessionState

  /**
   * Restores the state in a new session; ignores refusals. Rejects with a `GatewayError` if the signal aborts or the
   * session ends.
   */
  static async tell(
    session: UpstreamSession,
    state: SessionState,
    { server, clock, log }: RememberedTerms,
    signal: Signal,
  ): Promise<UpstreamSession> {
    // A modern server keeps no state: the session itself uses the caller's state.
    if (!session.keepsState) return session
    const tell = async (limit: Signal) => {
      for (const { method, params } of state.requests()) {
        const outcome = await session.exchange(ownCall(server, method, params, limit))
        if (outcome.kind !== 'answered') throw outcome.error
      }
    }
    try {
      await within(TELLING_MS, clock, signal, tell)
    } catch (error) {
      const { message } = error as GatewayError
      if (!signal.aborted)
        log.warn({ why: message }, 'the server refused subscriptions or the log level of an earlier session')
      // The restored state may have crashed the server, which other callers need. It is not restored again.
      if (session.ended.aborted) state.forget()
      if (signal.aborted || session.ended.aborted) {
        void session.close()
        throw error
      }
    }
    return new RememberedSession(session, state)
  }

  private constructor(session: UpstreamSession, state: SessionState) {
    this.#session = session
    this.#state = state
  }

  get initializeResult(): Message {
    return this.#session.initializeResult
  }

  get keepsState(): boolean {
    return this.#session.keepsState
  }

  get isAskedToRemember(): boolean {
    return !this.#state.isEmpty
  }

  get ended(): Signal {
    return this.#session.ended
  }

  exchange(call: Call): Promise<Outcome> {
    const answer = this.#session.exchange(call)
    return SessionState.isAbout(call) ? this.#noted(call, answer) : answer
  }

  /**
   * Notes a subscription or log level once the server has accepted it, and the end of a subscription after any outcome.
   */
  async #noted(call: Call, answer: Promise<Outcome>): Promise<Outcome> {
    const outcome = await answer
    if (call.method === 'resources/unsubscribe' || resultOf(outcome) === 'returned') this.#state.note(call)
    return outcome
  }

  post(text: string): Promise<void> {
    return this.#session.post(text)
  }

  listen(): void {
    this.#session.listen()
  }

  close(): Promise<void> {
    return this.#session.close()
  }
}
