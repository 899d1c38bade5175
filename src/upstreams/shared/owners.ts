import type { Clock, Millis } from '../../mesh/clock.ts'

/** Most ids that are remembered, of all callers and of one of them; beyond, the oldest of that caller is forgotten. */
const MAX_IDS = 10_000
const MAX_OF_CALLER = 1_000

/** How long an id is remembered after it was seen last, in milliseconds: whatever its server says. */
const LONGEST_MS: Millis = 24 * 60 * 60_000

interface Owned<Owner> {
  /** Undefined when its caller has left. */
  owner: Owner | undefined
  /** Whether the server may still be at work for it. */
  open: boolean
  until: Millis
}

/** Whose the things are that a server named in its answers: tasks, elicitations. An id that is not known is nobody's. */
export class Owners<Owner> {
  readonly #clock: Pick<Clock, 'now'>
  readonly #ids = new Map<string, Owned<Owner>>()
  readonly #counts = new Map<Owner, number>()

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  get size(): number {
    return this.#ids.size
  }

  /** An id belongs to a caller from now on, unless it is another's. `open`: whether the server goes on working for it. */
  add(id: string, owner: Owner, open: boolean, keepMs: Millis = LONGEST_MS): void {
    const known = this.#find(id)
    const until = this.#clock.now() + Math.min(keepMs, LONGEST_MS)
    if (known !== undefined) {
      if (known.owner === owner) Object.assign(known, { open, until })
      return
    }
    const count = this.#counts.get(owner) ?? 0
    if (count >= MAX_OF_CALLER) this.#forgetOldest(owner)
    else if (this.#ids.size >= MAX_IDS && !this.#forgetExpired()) this.#forgetOldest(undefined)
    this.#ids.set(id, { owner, open, until })
    this.#counts.set(owner, (this.#counts.get(owner) ?? 0) + 1)
  }

  /** Whose an id is; undefined when that is not known, or its caller has left. */
  of(id: unknown): Owner | undefined {
    return typeof id === 'string' ? this.#find(id)?.owner : undefined
  }

  /** The server is done with what has this id, which stays its caller's. */
  over(id: unknown): void {
    const known = typeof id === 'string' ? this.#find(id) : undefined
    if (known !== undefined) known.open = false
  }

  /** A caller is gone for good: what it had is nobody's, and stays open if it was. */
  left(caller: Owner): void {
    if (!this.#counts.delete(caller)) return
    for (const [id, owned] of this.#ids) {
      if (owned.owner !== caller) continue
      if (owned.open) owned.owner = undefined
      else this.#ids.delete(id)
    }
  }

  /** For whom the server may be at work: one caller, nobody, or that cannot be told. */
  working(): Owner | 'nobody' | 'unclear' {
    let only: Owner | undefined
    const now = this.#clock.now()
    for (const { owner, open, until } of this.#ids.values()) {
      if (!open || until <= now || (owner !== undefined && owner === only)) continue
      if (owner === undefined || only !== undefined) return 'unclear'
      only = owner
    }
    return only ?? 'nobody'
  }

  #find(id: string): Owned<Owner> | undefined {
    const known = this.#ids.get(id)
    if (known === undefined || known.until > this.#clock.now()) return known
    this.#delete(id, known)
    return undefined
  }

  #forgetExpired(): boolean {
    const now = this.#clock.now()
    for (const [id, owned] of this.#ids) if (owned.until <= now) this.#delete(id, owned)
    return this.#ids.size < MAX_IDS
  }

  /** Those of a caller that has left go first when there is no telling whose should. */
  #forgetOldest(owner: Owner | undefined): void {
    for (const [id, owned] of this.#ids) if (owned.owner === owner) return this.#delete(id, owned)
    for (const [id, owned] of this.#ids) return this.#delete(id, owned)
  }

  #delete(id: string, { owner }: Owned<Owner>): void {
    this.#ids.delete(id)
    if (owner === undefined) return
    const left = (this.#counts.get(owner) ?? 1) - 1
    if (left > 0) this.#counts.set(owner, left)
    else this.#counts.delete(owner)
  }
}
