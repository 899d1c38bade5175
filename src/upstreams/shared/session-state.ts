import type { Call, Caller } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'

/** Most remembered subscriptions per session; with more, the oldest is forgotten. */
export const MAX_SUBSCRIPTIONS = 1_024

const none: ReadonlySet<string> = new Set()

/** A caller's state at a server, restored when a session is reopened. */
export class SessionState {
  #subscriptions: Set<string> | undefined
  #level: string | undefined

  get level(): string | undefined {
    return this.#level
  }

  /** URIs of the caller's subscribed resources. */
  get subscriptions(): ReadonlySet<string> {
    return this.#subscriptions ?? none
  }

  /** Whether a call changes the state kept by a server. */
  static isAbout({ method }: Call): boolean {
    return (
      method === 'logging/setLevel' || method === 'resources/subscribe' || method === 'resources/unsubscribe'
    )
  }

  /** Forgets all state: a new session restores nothing. */
  forget(): void {
    this.#level = undefined
    this.#subscriptions = undefined
  }

  note(call: Call): void {
    if (!SessionState.isAbout(call)) return
    const { level, uri } = paramsOf(call.message.value)
    if (call.method !== 'logging/setLevel') this.#subscribe(uri, call.method === 'resources/subscribe')
    else if (typeof level === 'string') this.#level = level
  }

  /** Whether a new session has nothing to restore. */
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

  /** Returns the requests to restore the state in a new session. */
  *requests(): Generator<{ method: string; params: Record<string, unknown> }> {
    if (this.#level !== undefined) yield { method: 'logging/setLevel', params: { level: this.#level } }
    for (const uri of this.#subscriptions ?? []) yield { method: 'resources/subscribe', params: { uri } }
  }
}

/** The state of each caller, as long as the caller exists. */
export class SessionStates {
  readonly #states = new WeakMap<Caller, SessionState>()

  of(caller: Caller): SessionState {
    let state = this.#states.get(caller)
    if (state === undefined) this.#states.set(caller, (state = new SessionState()))
    return state
  }
}
