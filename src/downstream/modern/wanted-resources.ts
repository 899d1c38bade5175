import { newRecord } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { nextTurn, type Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import { requestText } from '../../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Front } from '../front.ts'
import type { Tenancy } from '../tenancy.ts'
import type { PooledCaller } from './pool.ts'

/** Most requests to one server, on behalf of one caller, at once. */
const AT_ONCE = 16

/** Who wants resources, and of whom. */
export interface Wanting {
  readonly front: Front
  readonly caller: PooledCaller
  readonly tenancy: Tenancy
}

/** What one caller wants of one front. */
interface Wants {
  /** How many subscriptions want each URI. */
  readonly counts: Map<string, number>
  /** The URIs that the server has to be told about, and for whom it is asked. Whether they are wanted counts when it is. */
  readonly untold: Map<string, Wanting>
  isTelling: boolean
}

/**
 * The resources that open subscriptions want to hear of. Servers of the legacy era are asked for each by a request of its
 * own: one for each URI however many want it, and a few at a time, so that a thousand subscriptions that end at once
 * hold up nobody.
 */
export class WantedResources {
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #wants = new Map<PooledCaller, Map<string | undefined, Wants>>()

  constructor(live: Live<GatewayGeneration>, clock: Clock) {
    this.#live = live
    this.#clock = clock
  }

  add(wanting: Wanting, uris: readonly string[]): void {
    if (uris.length === 0) return
    const wants = this.#of(wanting)
    for (const uri of uris) {
      wants.counts.set(uri, (wants.counts.get(uri) ?? 0) + 1)
      // Also when it is wanted already: the conversation may be another one by now.
      wants.untold.set(uri, wanting)
    }
    this.#tell(wants)
  }

  remove(wanting: Wanting, uris: readonly string[]): void {
    if (uris.length === 0) return
    const wants = this.#of(wanting)
    for (const uri of uris) {
      const left = (wants.counts.get(uri) ?? 0) - 1
      if (left > 0) wants.counts.set(uri, left)
      else {
        wants.counts.delete(uri)
        wants.untold.set(uri, wanting)
      }
    }
    this.#tell(wants)
    this.#forget(wanting)
  }

  #of({ caller, front }: Wanting): Wants {
    let fronts = this.#wants.get(caller)
    if (fronts === undefined) this.#wants.set(caller, (fronts = new Map<string | undefined, Wants>()))
    let wants = fronts.get(front.server)
    if (wants === undefined) {
      wants = { counts: new Map(), untold: new Map(), isTelling: false }
      fronts.set(front.server, wants)
    }
    return wants
  }

  #forget({ caller, front }: Wanting): void {
    const fronts = this.#wants.get(caller)
    const wants = fronts?.get(front.server)
    if (wants === undefined || wants.counts.size > 0 || wants.isTelling) return
    fronts?.delete(front.server)
    if (fronts?.size === 0) this.#wants.delete(caller)
  }

  #tell(wants: Wants): void {
    if (!wants.isTelling) void this.#tellAll(wants)
  }

  async #tellAll(wants: Wants): Promise<void> {
    wants.isTelling = true
    let last: Wanting | undefined
    while (wants.untold.size > 0) {
      const round: Promise<unknown>[] = []
      for (const [uri, wanting] of wants.untold) {
        wants.untold.delete(uri)
        last = wanting
        const asked = this.#ask(wanting, wants.counts.has(uri) ? 'subscribe' : 'unsubscribe', uri)
        if (asked !== undefined && round.push(asked) === AT_ONCE) break
      }
      if (round.length === 0) continue
      await Promise.allSettled(round)
      // Servers that are out of reach answer at once, and so would all of the next ones.
      if (wants.untold.size > 0) await nextTurn()
    }
    wants.isTelling = false
    if (last !== undefined) this.#forget(last)
  }

  #ask({ front, caller, tenancy }: Wanting, what: string, uri: string): Promise<unknown> | undefined {
    // Nothing is left to be asked of a server that was removed.
    if (front.server !== undefined && !this.#live.current.servers.has(front.server)) return undefined
    const id = caller.mintId()
    const method = `resources/${what}`
    const params = { uri }
    const message = { text: requestText(id, method, params), value: { jsonrpc: '2.0', id, method, params } }
    const channelFor = () => ({ open: () => undefined, pause: () => undefined, send: () => undefined })
    const record = newRecord(this.#clock.now())
    const signal = new Cancellation()
    const inquiry = { id, message, headers: {}, caller, tenancy, channelFor, signal, record }
    const lease = this.#live.enter()
    return front.request(lease.generation, inquiry).finally(() => lease.release())
  }
}
