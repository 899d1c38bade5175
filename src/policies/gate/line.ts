/** A call that waits for its server to be back. */
export interface Waiter {
  readonly tenant: string
  /** Size of its request, in characters. */
  readonly bytes: number
  /** Whether it may be what ends the server: it goes last, and alone. */
  readonly isSuspect: boolean
  /** It goes now. */
  go(): void
  /** Its place goes to a call of another tenant. */
  displaced(): void
}

/** One tenant's calls in line: all of them, and all that are no suspects. */
interface Share {
  readonly waiters: Set<Waiter>
  readonly usual: Set<Waiter>
  bytes: number
}

/**
 * Calls in the order in which they came, the tenants in turn; bounded in number and size: when it is full, the tenant that has the most
 * gives way.
 */
export class Line {
  readonly #most: number
  readonly #mostBytes: number
  readonly #suspects = new Set<Waiter>()
  /** By tenant, the one first whose turn it is. */
  readonly #shares = new Map<string, Share>()
  #size = 0
  bytes = 0

  /** `most`: how many calls; `mostBytes`: how large all of them may be together. */
  constructor(most: number, mostBytes: number) {
    this.#most = most
    this.#mostBytes = mostBytes
  }

  get size(): number {
    return this.#size
  }

  /** How many of them are suspects. */
  get suspects(): number {
    return this.#suspects.size
  }

  /** Puts a call at the end. Returns why there is no place for it, in words, or undefined when there is one. */
  add(waiter: Waiter): string | undefined {
    const { tenant, bytes, isSuspect } = waiter
    const victims = this.#victims(waiter)
    if (victims === undefined)
      return this.size >= this.#most
        ? `${this.size} of ${this.#most} calls wait for it already`
        : `the calls that wait for it hold ${this.bytes} of ${this.#mostBytes} bytes`
    for (const victim of victims) {
      this.remove(victim)
      victim.displaced()
    }
    let share = this.#shares.get(tenant)
    if (share === undefined)
      this.#shares.set(tenant, (share = { waiters: new Set(), usual: new Set(), bytes: 0 }))
    share.waiters.add(waiter)
    ;(isSuspect ? this.#suspects : share.usual).add(waiter)
    share.bytes += bytes
    this.bytes += bytes
    this.#size++
    return undefined
  }

  /** Takes a call out; does nothing when it is not in line. */
  remove(waiter: Waiter): void {
    const share = this.#shares.get(waiter.tenant)
    if (share?.waiters.delete(waiter) !== true) return
    share.usual.delete(waiter)
    this.#suspects.delete(waiter)
    this.#size--
    this.bytes -= waiter.bytes
    share.bytes -= waiter.bytes
    if (share.waiters.size === 0) this.#shares.delete(waiter.tenant)
  }

  /** Takes out whose turn it is, among those that are no suspects. */
  next(): Waiter | undefined {
    for (const [tenant, share] of this.#shares)
      for (const waiter of share.usual) {
        // The tenant's next turn comes after those of all others.
        this.#shares.delete(tenant)
        this.#shares.set(tenant, share)
        this.remove(waiter)
        return waiter
      }
    return undefined
  }

  /** Takes out the suspect that has waited longest. */
  nextSuspect(): Waiter | undefined {
    for (const waiter of this.#suspects) {
      this.remove(waiter)
      return waiter
    }
    return undefined
  }

  /** Returns the calls that give way to `waiter`; undefined when `waiter` finds no place even then, and no call gives way. */
  #victims(waiter: Waiter): ReadonlySet<Waiter> | undefined {
    const victims = new Set<Waiter>()
    let [size, bytes] = [this.size, this.bytes + waiter.bytes]
    while (size >= this.#most || bytes > this.#mostBytes) {
      const victim = this.#victim(waiter, victims)
      if (victim === undefined) return undefined
      victims.add(victim)
      size--
      bytes -= victim.bytes
    }
    return victims
  }

  /**
   * The latest call of the tenant with the largest share, if that is larger than the share that the new call's tenant would have.
   * `gone`: calls that give way already.
   */
  #victim({ tenant, bytes }: Waiter, gone: ReadonlySet<Waiter>): Waiter | undefined {
    const weigh = (count: number, size: number) => Math.max(count / this.#most, size / this.#mostBytes)
    const own = this.#shares.get(tenant)
    let most = weigh((own?.waiters.size ?? 0) + 1, (own?.bytes ?? 0) + bytes)
    let largest: Share | undefined
    for (const [name, share] of this.#shares) {
      let [count, size] = [share.waiters.size, share.bytes]
      for (const victim of gone)
        if (victim.tenant === name) {
          count--
          size -= victim.bytes
        }
      const weight = weigh(count, size)
      if (weight <= most) continue
      most = weight
      largest = share
    }
    return largest && [...largest.waiters].findLast((waiter) => !gone.has(waiter))
  }
}
