import type { Call, Caller } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'

/** Most subscriptions that are remembered for a session; past it the oldest is forgotten. */
const MAX_SUBSCRIPTIONS = 1_024

/** The state that a caller asked a server to keep in mind, to be told again when a session is opened again. */
export class SessionState {
  #subscriptions: Set<string> | undefined
  #level: unknown

  /** Whether a call asks a server to keep something in mind, or not to any more. */
  static isAbout({ method }: Call): boolean {
    return (
      method === 'logging/setLevel' || method === 'resources/subscribe' || method === 'resources/unsubscribe'
    )
  }

  /** From now on a new session is told nothing. */
  forget(): void {
    this.#level = undefined
    this.#subscriptions = undefined
  }

  /** Watches the calls go by. */
  note(call: Call): void {
    switch (call.method) {
      case 'logging/setLevel':
        this.#level = paramsOf(call.message.value).level
        return
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return this.#subscribe(paramsOf(call.message.value).uri, call.method === 'resources/subscribe')
    }
  }

  /** Whether a new session need not be told anything. */
  get isEmpty(): boolean {
    return this.#level === undefined && (this.#subscriptions?.size ?? 0) === 0
  }

  #subscribe(uri: unknown, on: boolean): void {
    if (typeof uri !== 'string') return
    this.#subscriptions?.delete(uri)
    if (!on) return
    const subscriptions = (this.#subscriptions ??= new Set())
    subscriptions.add(uri)
    if (subscriptions.size <= MAX_SUBSCRIPTIONS) return
    const [oldest] = subscriptions
    if (oldest !== undefined) subscriptions.delete(oldest)
  }

  /** The requests that bring a new session to where the old one was. */
  *requests(): Generator<{ method: string; params: Record<string, unknown> }> {
    if (this.#level !== undefined) yield { method: 'logging/setLevel', params: { level: this.#level } }
    for (const uri of this.#subscriptions ?? []) yield { method: 'resources/subscribe', params: { uri } }
  }
}

/** The state of each caller, for as long as the caller is there. */
export class SessionStates {
  readonly #states = new WeakMap<Caller, SessionState>()

  of(caller: Caller): SessionState {
    let state = this.#states.get(caller)
    if (state === undefined) this.#states.set(caller, (state = new SessionState()))
    return state
  }
}
