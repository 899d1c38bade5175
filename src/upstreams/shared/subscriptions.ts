import type { Caller } from '../../mesh/call.ts'

/** Which caller subscribed to which resource, where a server knows only one client. */
export class Subscriptions {
  readonly #callers = new Map<string, Set<Caller>>()
  readonly #uris = new Map<Caller, Set<string>>()

  /** Returns what takes it back, for a server that declines. */
  add(uri: string, caller: Caller): () => void {
    const callers = this.#callers.get(uri) ?? new Set()
    if (callers.has(caller)) return () => undefined
    this.#callers.set(uri, callers.add(caller))
    this.#uris.set(caller, (this.#uris.get(caller) ?? new Set()).add(uri))
    return () => this.remove(uri, caller)
  }

  /** Returns whether other callers are still subscribed. */
  remove(uri: string, caller: Caller): boolean {
    const callers = this.#callers.get(uri)
    callers?.delete(caller)
    if (callers?.size === 0) this.#callers.delete(uri)
    const uris = this.#uris.get(caller)
    uris?.delete(uri)
    if (uris?.size === 0) this.#uris.delete(caller)
    return this.#callers.has(uri)
  }

  /** Ends all that a caller subscribed to; returns what nobody is subscribed to any more. */
  release(caller: Caller): string[] {
    return [...(this.#uris.get(caller) ?? [])].filter((uri) => !this.remove(uri, caller))
  }

  /** Who wants to know of a change; a server may tell of a part of what was subscribed to. */
  subscribersOf(changed: string): Set<Caller> {
    const subscribers = new Set<Caller>()
    const add = (uri: string) => {
      for (const caller of this.#callers.get(uri) ?? []) subscribers.add(caller)
    }
    add(changed)
    const parts = changed.split('/', MOST_PARTS + 1)
    if (parts.length <= MOST_PARTS) {
      // Each beginning that ends before or behind a slash may have been subscribed to.
      for (let at = changed.indexOf('/'); at !== -1; at = changed.indexOf('/', at + 1)) {
        add(changed.slice(0, at))
        add(changed.slice(0, at + 1))
      }
      return subscribers
    }
    for (const uri of this.#callers.keys())
      if (changed.startsWith(uri.endsWith('/') ? uri : `${uri}/`)) add(uri)
    return subscribers
  }
}

/** Most parts of a URI whose beginnings are looked up; of one with more, all subscriptions are gone through. */
const MOST_PARTS = 64
