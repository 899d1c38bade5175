import type { Clock, Millis } from '../../mesh/clock.ts'
import { shortId } from '../../units/short-id.ts'

/**
 * Most ids that are remembered, of all callers and of one of them. A caller that has its most loses its own oldest. Where all
 * are too many, that of the caller with the most goes, if that has more than the one who comes, which else loses its own
 * oldest, or is not remembered: nobody loses anything to callers that have more. Of one caller, what is over goes first.
 */
const MAX_IDS = 10_000
const MAX_OF_CALLER = 1_000

/** How long an id is remembered after it was seen last, in milliseconds: whatever its server says. */
const LONGEST_MS: Millis = 24 * 60 * 60_000

/** How long the server may be at work for a caller that has left, in milliseconds: it is unclear for whom meanwhile. */
const AFTER_LEAVING_MS: Millis = 5 * 60_000

/** Longest time for which expired entries still count, in milliseconds: a sweep looks through all ids. */
const SWEEP_MS: Millis = 1_000

interface Owned<Owner> {
  /** Undefined when its caller has left. */
  owner: Owner | undefined
  /** Whether the server may still be at work for it. */
  open: boolean
  until: Millis
  /** Until when it counts as open, at the latest. */
  openUntil: Millis
}

/** For whom the server may be at work. */
export interface Work<Owner> {
  /** Owners that are still there. */
  readonly owners: readonly Owner[]
  /** After how long it counts no more, at the latest, in milliseconds. */
  readonly leftMs: Millis
}

/** The ids of one caller, or those that are open of callers that have left; oldest first. */
interface Share {
  readonly open: Set<string>
  readonly over: Set<string>
  /** Until when the server may be at work for what is not remembered of it. */
  forgottenUntil: Millis
}

/** The owners of the things that a server named in its answers: tasks, elicitations. An unknown id is nobody's. */
export class Owners<Owner> {
  readonly #clock: Pick<Clock, 'now'>
  readonly #ids = new Map<string, Owned<Owner>>()
  readonly #shares = new Map<Owner | undefined, Share>()
  /** No entry expires before this. */
  #nextExpiry: Millis = Infinity
  #sweptAt: Millis = -Infinity
  readonly #longestOpenMs: Millis

  /** `longestOpenMs`: how long the server counts as at work for an id, whose owner's it is for longer. */
  constructor(clock: Pick<Clock, 'now'>, longestOpenMs = LONGEST_MS) {
    this.#clock = clock
    this.#longestOpenMs = longestOpenMs
  }

  get size(): number {
    return this.#ids.size
  }

  /**
   * An id belongs to a caller from now on, unless the server still works for another's: it may give those again that are over.
   * `open`: whether the server goes on working for it; `openMs`: for how long at most. The id stays the caller's for a day even so:
   * some servers keep a task for longer than they say.
   */
  add(given: string, owner: Owner, open: boolean, openMs: Millis = LONGEST_MS): void {
    const id = shortId(given)
    const known = this.#ownOrFree(id, owner)
    if (known === 'taken') return
    const now = this.#clock.now()
    const until = now + LONGEST_MS
    const openUntil = now + Math.min(openMs, this.#longestOpenMs)
    this.#nextExpiry = Math.min(this.#nextExpiry, openUntil)
    if (known !== undefined) {
      known.until = until
      known.openUntil = openUntil
      return this.#mark(id, known, open)
    }
    const share = this.#shares.get(owner) ?? emptyShare()
    const hasRoom = this.#makeRoom(share)
    if (!hasRoom && !open) return
    this.#shares.set(owner, share)
    if (hasRoom) {
      this.#ids.set(id, { owner, open, until, openUntil })
      idsOf(share, open).add(id)
    } else share.forgottenUntil = Math.max(share.forgottenUntil, openUntil)
  }

  /** Returns the caller's entry of an id; `taken` while the server works for another caller's. Else another caller's entry is deleted. */
  #ownOrFree(id: string, owner: Owner): Owned<Owner> | 'taken' | undefined {
    const known = this.#find(id)
    if (known === undefined || known.owner === owner) return known
    if (known.open && known.openUntil > this.#clock.now()) return 'taken'
    this.#delete(id, known)
    return undefined
  }

  /** Returns the owner of an id; undefined when the id is unknown, or its caller has left. */
  of(id: unknown): Owner | undefined {
    return typeof id === 'string' ? this.#find(shortId(id))?.owner : undefined
  }

  /** The server is done with what has this id, which stays its caller's. */
  over(given: unknown): void {
    if (typeof given !== 'string') return
    const id = shortId(given)
    const known = this.#find(id)
    if (known !== undefined) this.#mark(id, known, false)
  }

  /** A caller is gone for good: what it had is nobody's, and what was open stays so for a while. */
  left(caller: Owner): void {
    const share = this.#shares.get(caller)
    if (share === undefined) return
    this.#shares.delete(caller)
    for (const id of share.over) this.#ids.delete(id)
    const latest = this.#clock.now() + AFTER_LEAVING_MS
    const left = this.#shares.get(undefined) ?? emptyShare()
    for (const id of share.open) {
      const owned = this.#ids.get(id)
      if (owned === undefined) continue
      owned.owner = undefined
      owned.until = Math.min(owned.until, latest)
      left.open.add(id)
    }
    left.forgottenUntil = Math.max(left.forgottenUntil, Math.min(share.forgottenUntil, latest))
    this.#shares.set(undefined, left)
    this.#nextExpiry = Math.min(this.#nextExpiry, latest)
  }

  /** Whether the server may be at work for an owner. */
  isWorkingFor(owner: Owner): boolean {
    this.#sweep()
    const share = this.#shares.get(owner)
    return share !== undefined && (share.open.size > 0 || share.forgottenUntil > this.#clock.now())
  }

  /** For whom the server may be at work, all of them, and for how long still. */
  work(): Work<Owner> {
    this.#sweep()
    const now = this.#clock.now()
    const owners: Owner[] = []
    let until = now
    for (const [owner, { open, forgottenUntil }] of this.#shares) {
      if (open.size === 0 && forgottenUntil <= now) continue
      if (owner !== undefined) owners.push(owner)
      until = Math.max(until, forgottenUntil)
      for (const id of open) {
        const owned = this.#ids.get(id)
        if (owned !== undefined) until = Math.max(until, Math.min(owned.until, owned.openUntil))
      }
    }
    return { owners, leftMs: until - now }
  }

  /** For whom the server may be at work: one caller, nobody, or that cannot be told. */
  working(): Owner | 'nobody' | 'unclear' {
    this.#sweep()
    const now = this.#clock.now()
    let only: Owner | undefined
    for (const [owner, { open, forgottenUntil }] of this.#shares) {
      if (open.size === 0 && forgottenUntil <= now) continue
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

  #mark(id: string, owned: Owned<Owner>, open: boolean): void {
    const share = this.#shares.get(owned.owner)
    if (share === undefined || owned.open === open) return
    if (owned.owner === undefined) return this.#delete(id, owned)
    idsOf(share, owned.open).delete(id)
    idsOf(share, open).add(id)
    owned.open = open
  }

  /** Whether there is room for one more of a share, after something had to go for it where there was none. */
  #makeRoom(share: Share): boolean {
    if (sizeOf(share) >= MAX_OF_CALLER) return this.#forgetOldest(share)
    if (this.#ids.size < MAX_IDS) return true
    this.#sweep()
    return this.#ids.size < MAX_IDS || this.#forgetOldest(this.#largest(sizeOf(share) + 1) ?? share)
  }

  /** Returns the share that callers have left behind, or else the largest share of more than `size` ids. */
  #largest(size: number): Share | undefined {
    const left = this.#shares.get(undefined)
    if (left !== undefined && left.open.size > 0) return left
    let most = size
    let largest: Share | undefined
    for (const share of this.#shares.values())
      if (sizeOf(share) > most) [largest, most] = [share, sizeOf(share)]
    return largest
  }

  /** False when the share has nothing. */
  #forgetOldest(share: Share): boolean {
    const [id] = share.over.size > 0 ? share.over : share.open
    const owned = id === undefined ? undefined : this.#ids.get(id)
    if (id === undefined || owned === undefined) return false
    if (owned.open) share.forgottenUntil = Math.max(share.forgottenUntil, owned.openUntil)
    this.#delete(id, owned)
    return true
  }

  #delete(id: string, { owner, open }: Owned<Owner>): void {
    this.#ids.delete(id)
    const share = this.#shares.get(owner)
    if (share === undefined) return
    idsOf(share, open).delete(id)
    if (sizeOf(share) === 0 && share.forgottenUntil <= this.#clock.now()) this.#shares.delete(owner)
  }

  /** Forgets what has expired. */
  #sweep(): void {
    const now = this.#clock.now()
    if (now < this.#nextExpiry || now < this.#sweptAt + SWEEP_MS) return
    this.#sweptAt = now
    this.#nextExpiry = Infinity
    for (const [id, owned] of this.#ids) {
      if (owned.open && owned.openUntil <= now) this.#mark(id, owned, false)
      if (owned.until <= now) this.#delete(id, owned)
      else this.#nextExpiry = Math.min(this.#nextExpiry, owned.until, owned.open ? owned.openUntil : Infinity)
    }
    for (const [owner, share] of this.#shares) {
      if (share.forgottenUntil > now) this.#nextExpiry = Math.min(this.#nextExpiry, share.forgottenUntil)
      else if (sizeOf(share) === 0) this.#shares.delete(owner)
    }
  }
}

function emptyShare(): Share {
  return { open: new Set(), over: new Set(), forgottenUntil: -Infinity }
}

function idsOf({ open, over }: Share, isOpen: boolean): Set<string> {
  return isOpen ? open : over
}

function sizeOf({ open, over }: Share): number {
  return open.size + over.size
}
