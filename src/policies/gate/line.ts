/** A call waiting for its server to return. */
export interface Waiter {
  readonly tenant: string
  /** Size of the call's request, in characters. */
  readonly bytes: number
  /** Whether the call may have crashed the server: such a call is released last, and alone. */
  readonly isSuspect: boolean
  go(): void
  /** Called when the place goes to a call of another tenant. */
  displaced(): void
}

/** A tenant's calls in line: all calls, and all without suspects. */
interface Share {
  readonly waiters: Set<Waiter>
  readonly usual: Set<Waiter>
  bytes: number
}

/**
 * Queues calls in order of arrival; tenants take turns. Bounded in number and size: when full, evicts calls of the
 * tenant with the largest share.
 */
export class Line {
  readonly #most: number
  readonly #mostBytes: number
  readonly #suspects = new Set<Waiter>()
  /** The waiting calls by tenant; the first tenant has the next turn. */
  readonly #shares = new Map<string, Share>()
  #size = 0
  bytes = 0

  /** `most`: how many calls; `mostBytes`: their total size. */
  constructor(most: number, mostBytes: number) {
    this.#most = most
    this.#mostBytes = mostBytes
  }

  get size(): number {
    return this.#size
  }

  get suspects(): number {
    return this.#suspects.size
  }

  /** Adds a call at the end. Returns the reason when there is no place, in words, or else undefined. */
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

  /** Removes a call; does nothing when the call is not in line. */
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

  /** Removes and returns the next call, suspects excluded. */
  next(): Waiter | undefined {
    for (const [tenant, share] of this.#shares)
      for (const waiter of share.usual) {
        // The tenant's next turn is after all other tenants' turns.
        this.#shares.delete(tenant)
        this.#shares.set(tenant, share)
        this.remove(waiter)
        return waiter
      }
    return undefined
  }

  nextSuspect(): Waiter | undefined {
    for (const waiter of this.#suspects) {
      this.remove(waiter)
      return waiter
    }
    return undefined
  }

  /** Returns the calls to evict for `waiter`; undefined when even evictions would make no place. */
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
   * Returns the latest call of the tenant with the largest share, if that share is larger than the new tenant's would
   * be. `gone`: calls already chosen for eviction.
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
