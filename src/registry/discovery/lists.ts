import type { Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { isGatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { emptyCatalog, fetchList, type Ask, type Catalog, type Entry, type Fetched } from '../catalog.ts'
import { kinds, listKinds, type ListKind } from '../kinds.ts'

const nothing: Fetched = { entries: [], cut: undefined }

/** The lists of one server as they were fetched last, and which of them have to be fetched anew. */
export class Lists {
  readonly #clock: Clock
  readonly #refreshMs: () => Millis
  readonly #limit: () => number
  readonly #stale = new Set<ListKind>()
  /** When all of them were fetched last, on the monotonic clock; or when that was begun. */
  #fetchedAt: Millis = -Infinity
  #catalog = emptyCatalog

  /**
   * `refreshMs`: how long they are believed to be true when nobody says otherwise; `limit`: how much is kept of each, in
   * bytes.
   */
  constructor(clock: Clock, refreshMs: () => Millis, limit: () => number) {
    this.#clock = clock
    this.#limit = limit
    this.#refreshMs = refreshMs
  }

  get catalog(): Catalog {
    return this.#catalog
  }

  get fresh(): boolean {
    return this.#stale.size === 0 && !this.#isOld(this.#clock.now())
  }

  /** All of them may have changed. */
  doubt(): void {
    this.#fetchedAt = -Infinity
  }

  /** Takes notice of what the server tells; whether it was that a list changed. */
  hear({ value: { method } }: Message): boolean {
    const changed = listKinds.filter((kind) => kinds[kind].changed === method)
    for (const kind of changed) this.#stale.add(kind)
    return changed.length > 0
  }

  /** Fetches the stale ones that a server with this `greeting` offers. Rejects with a `GatewayError`. */
  async fetch({ value: { capabilities } }: Message, ask: Ask): Promise<void> {
    const stale = this.#takeStale()
    const offered = (kind: ListKind) => isObject(capabilities) && kinds[kind].capability in capabilities
    const lists: Record<ListKind, readonly Entry[]> = { ...this.#catalog.lists }
    const cuts: Partial<Record<ListKind, string>> = { ...this.#catalog.cut }
    await Promise.all(
      stale.map(async (kind) => {
        const { entries, cut } = offered(kind)
          ? await fetchList(kind, ask, this.#limit()).catch(this.#lastKnown(kind))
          : nothing
        lists[kind] = entries
        if (cut === undefined) Reflect.deleteProperty(cuts, kind)
        else cuts[kind] = cut
      }),
    )
    const cut = Object.keys(cuts).length === 0 ? {} : { cut: cuts }
    this.#catalog = { fetchedAt: this.#clock.wall(), lists, ...cut }
  }

  #takeStale(): readonly ListKind[] {
    const now = this.#clock.now()
    const all = this.#isOld(now)
    if (all) this.#fetchedAt = now
    const stale = all ? listKinds : [...this.#stale]
    this.#stale.clear()
    return stale
  }

  #isOld(now: Millis): boolean {
    return now >= this.#fetchedAt + this.#refreshMs()
  }

  /** A server whose tools work is up, whatever it says about its other lists: of those it keeps the last-known. */
  #lastKnown(kind: ListKind): (cause: unknown) => Fetched {
    return (cause) => {
      if (kind !== 'tools' && isGatewayError(cause) && cause.reason === 'bad_reply')
        return { entries: this.#catalog.lists[kind], cut: this.#catalog.cut?.[kind] }
      throw cause
    }
  }
}
