import type { Caller } from '../../mesh/call.ts'

/** Which caller subscribed to which resource, where a server knows only one client. */
export class Subscriptions {
  readonly #callers = new Map<string, Set<Caller>>()

  /** Returns what takes it back, for a server that declines. */
  add(uri: string, caller: Caller): () => void {
    const callers = this.#callers.get(uri) ?? new Set()
    if (callers.has(caller)) return () => undefined
    this.#callers.set(uri, callers.add(caller))
    return () => this.remove(uri, caller)
  }

  /** Returns whether other callers are still subscribed. */
  remove(uri: string, caller: Caller): boolean {
    const callers = this.#callers.get(uri)
    callers?.delete(caller)
    if (callers?.size === 0) this.#callers.delete(uri)
    return this.#callers.has(uri)
  }

  /** Ends all that a caller subscribed to; returns what nobody is subscribed to any more. */
  release(caller: Caller): string[] {
    const theirs = [...this.#callers].filter(([, callers]) => callers.has(caller))
    return theirs.map(([uri]) => uri).filter((uri) => !this.remove(uri, caller))
  }

  /** Who wants to know of a change; a server may tell of a part of what was subscribed to. */
  subscribersOf(changed: string): Set<Caller> {
    const subscribers = new Set<Caller>()
    for (const [uri, callers] of this.#callers) {
      if (changed !== uri && !changed.startsWith(uri.endsWith('/') ? uri : `${uri}/`)) continue
      for (const caller of callers) subscribers.add(caller)
    }
    return subscribers
  }
}
