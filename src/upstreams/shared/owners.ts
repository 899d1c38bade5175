import type { Clock, Millis } from '../../mesh/clock.ts'
import { shortId } from '../../units/short-id.ts'

/**
 * Most remembered ids, of all callers and of one caller. A caller at its own limit loses its oldest id. At the total
 * limit, the caller with the most ids loses its oldest, if it has more than the new id's caller. Otherwise the new id's
 * caller loses its own oldest id, or the new id is not remembered. So no caller loses ids to a caller with more ids.
 * Each caller loses its finished ids first.
 */
const MAX_IDS = 10_000
const MAX_OF_CALLER = 1_000

/** How long an id is remembered since last seen, in milliseconds, whatever its server says. */
const LONGEST_MS: Millis = 24 * 60 * 60_000

/**
 * How long the server may work for a departed caller, in milliseconds: meanwhile, a server request may belong to this
 * caller.
 */
const AFTER_LEAVING_MS: Millis = 5 * 60_000

/** Least interval between sweeps of expired entries, in milliseconds: a sweep scans all ids. */
const SWEEP_MS: Millis = 1_000

interface Owned<Owner> {
  /** Undefined after the caller has left. */
  owner: Owner | undefined
  /** Whether the server may still work on this id. */
  open: boolean
  until: Millis
  /** Until when the id may count as open. */
  openUntil: Millis
}

/** The owners for whom the server may be working. */
export interface Work<Owner> {
  /** Owners still present. */
  readonly owners: readonly Owner[]
  /** Longest remaining time, in milliseconds. */
  readonly leftMs: Millis
}

/** The ids of one caller, or the open ids of departed callers; oldest first. */
interface Share {
  readonly open: Set<string>
  readonly over: Set<string>
  /** Until when the server may still work on forgotten ids. */
  forgottenUntil: Millis
}

/** The owners of things named in a server's answers: tasks, elicitations. Unknown ids have no owner. */
export class Owners<Owner> {
  readonly #clock: Pick<Clock, 'now'>
  readonly #ids = new Map<string, Owned<Owner>>()
  readonly #shares = new Map<Owner | undefined, Share>()
  /** Time of the next expiry: no entry expires earlier. */
  #nextExpiry: Millis = Infinity
  #sweptAt: Millis = -Infinity
  readonly #longestOpenMs: Millis

  /** `longestOpenMs`: how long an id may count as open; its ownership lasts longer. */
  constructor(clock: Pick<Clock, 'now'>, longestOpenMs = LONGEST_MS) {
    this.#clock = clock
    this.#longestOpenMs = longestOpenMs
  }

  get size(): number {
    return this.#ids.size
  }

  /**
   * Makes a caller the owner of an id, unless the server still works under this id for another caller; a server may
   * reuse finished ids. `open`: whether the server continues its work; `openMs`: for how long at most. The id stays the
   * caller's for a day: some servers keep tasks longer than announced.
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

  /** Returns the caller's entry; `taken` while the server works for another caller. Deletes another caller's idle entry. */
  #ownOrFree(id: string, owner: Owner): Owned<Owner> | 'taken' | undefined {
    const known = this.#find(id)
    if (known === undefined || known.owner === owner) return known
    if (known.open && known.openUntil > this.#clock.now()) return 'taken'
    this.#delete(id, known)
    return undefined
  }

  /** Returns the owner of an id; undefined for an unknown id or a departed caller. */
  of(id: unknown): Owner | undefined {
    return typeof id === 'string' ? this.#find(shortId(id))?.owner : undefined
  }

  /** Marks an id as finished; its owner stays. */
  over(given: unknown): void {
    if (typeof given !== 'string') return
    const id = shortId(given)
    const known = this.#find(id)
    if (known !== undefined) this.#mark(id, known, false)
  }

  /** Forgets a departed caller: its ids have no owner now, and open ids stay open for a while. */
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

  isWorkingFor(owner: Owner): boolean {
    this.#sweep()
    const share = this.#shares.get(owner)
    return share !== undefined && (share.open.size > 0 || share.forgottenUntil > this.#clock.now())
  }

  /** Returns all owners for whom the server may be working, and the longest remaining time. */
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

  /** Returns the only caller for whom the server may be working, `nobody`, or `unclear`. */
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

  /** Makes room for an id of a share, if needed by forgetting another id; returns whether there is room. */
  #makeRoom(share: Share): boolean {
    if (sizeOf(share) >= MAX_OF_CALLER) return this.#forgetOldest(share)
    if (this.#ids.size < MAX_IDS) return true
    this.#sweep()
    return this.#ids.size < MAX_IDS || this.#forgetOldest(this.#largest(sizeOf(share) + 1) ?? share)
  }

  /** Returns the share of departed callers, otherwise the largest share with more than `size` ids. */
  #largest(size: number): Share | undefined {
    const left = this.#shares.get(undefined)
    if (left !== undefined && left.open.size > 0) return left
    let most = size
    let largest: Share | undefined
    for (const share of this.#shares.values())
      if (sizeOf(share) > most) [largest, most] = [share, sizeOf(share)]
    return largest
  }

  /** Forgets the oldest id of a share, finished ids first. Returns false for an empty share. */
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
