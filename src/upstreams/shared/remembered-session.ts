import type { Call, Message, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { within } from '../failure.ts'
import { ownCall } from '../own-call.ts'
import type { UpstreamSession } from '../upstream.ts'
import type { SessionState } from './session-state.ts'

interface RememberedTerms {
  /** The server's name in the registry. */
  readonly server: string
  readonly clock: Clock
  /** How long the server may take for what it is told again, in milliseconds. */
  readonly limitMs: Millis
}

/**
 * An upstream session that ends with its process or stream. The one after it is told which subscriptions and which log level its
 * caller had asked for.
 */
export class RememberedSession implements UpstreamSession {
  readonly #session: UpstreamSession
  readonly #state: SessionState

  /** Tells a session that was just begun. Rejects with a `GatewayError`, and has ended the session then. */
  static async tell(
    session: UpstreamSession,
    state: SessionState,
    { server, clock, limitMs }: RememberedTerms,
    signal: Signal,
  ): Promise<UpstreamSession> {
    // In the modern era each request says all of itself.
    if (!session.keepsState) return session
    try {
      await within(limitMs, clock, signal, async (limit) => {
        for (const { method, params } of state.requests()) {
          const outcome = await session.exchange(ownCall(server, method, params, limit))
          if (limit.aborted || session.ended.aborted)
            throw outcome.kind === 'answered' ? limit.reason : outcome.error
        }
      })
    } catch (error) {
      void session.close()
      throw error
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
    this.#state.note(call)
    return this.#session.exchange(call)
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
