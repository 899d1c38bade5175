import type { Call, Caller } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'

/** Most subscriptions that are remembered for a session; past it the oldest is forgotten. */
export const MAX_SUBSCRIPTIONS = 1_024

const none: ReadonlySet<string> = new Set()

/** The state that a caller asked a server to keep in mind, to be told again when a session is opened again. */
export class SessionState {
  #subscriptions: Set<string> | undefined
  #level: string | undefined

  /** The log level that the caller asked for last. */
  get level(): string | undefined {
    return this.#level
  }

  /** URIs of the resources that the caller subscribed to. */
  get subscriptions(): ReadonlySet<string> {
    return this.#subscriptions ?? none
  }

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
    if (!SessionState.isAbout(call)) return
    const { level, uri } = paramsOf(call.message.value)
    if (call.method !== 'logging/setLevel') this.#subscribe(uri, call.method === 'resources/subscribe')
    else if (typeof level === 'string') this.#level = level
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
