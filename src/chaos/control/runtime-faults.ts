import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { FaultCounts } from '../accounting/counts.ts'
import type { FaultRegistry } from '../faults/index.ts'
import { formatDuration } from '../../units/duration.ts'
import { faultFindings, protectedFindings } from '../plan/checks.ts'
import type { Fault } from '../plan/common.ts'
import type { ArmedFaults } from './chaos-run.ts'
import { DONE, type Done } from './controller-parts.ts'

const MAX_RUNTIME_FAULTS = 1_000

export interface RuntimeParts {
  readonly clock: Clock
  readonly armed: ArmedFaults
  readonly registry: FaultRegistry
  /** Returns why no fault may be armed now; undefined when arming is allowed. */
  readonly refusal: () => string | undefined
  readonly isProtected: (server: string) => boolean
  readonly maxTtl: () => number
  readonly random: () => KeyedRandom
  readonly isPlanned: (name: string) => boolean
  readonly onChange: (
    type: 'injected' | 'cleared',
    by: string,
    detail: Readonly<Record<string, unknown>>,
  ) => void
  /** Begins a run if none is under way. */
  readonly onBegin: () => void
}

export type Injected =
  | {
      readonly ok: true
      readonly id: string
      /** The fault's live counts: calls already decided on still count after the fault has ended. */
      readonly counts: Readonly<FaultCounts>
    }
  | { readonly ok: false; readonly why: string }

/** A lease that ends a fault `ms` milliseconds after the latest renewal. */
interface FaultLease {
  readonly ms: Millis
  cancel: Cancel
}

const idOf = (number: number) => `fault-${number}`

/**
 * Faults created one by one through the runtime API. Each fault has an id and a time to live. An optional lease ends
 * the fault when nobody renews the lease in time.
 */
export class RuntimeFaults {
  readonly #parts: RuntimeParts
  readonly #names = new Map<string, string>()
  readonly #leases = new Map<string, FaultLease>()
  #made = 0

  constructor(parts: RuntimeParts) {
    this.#parts = parts
  }

  /** Returns the id of the next fault, which is also its default name. No other fault has this name. */
  nextId(): string {
    return idOf(this.#nextNumber())
  }

  #nextNumber(): number {
    const { isPlanned, armed } = this.#parts
    let number = this.#made + 1
    while (isPlanned(idOf(number)) || armed.get(idOf(number)) !== undefined) number++
    return number
  }

  /** Arms a fault. `durationMs` replaces its `ttl`, up to `maxTtl`. `leaseMs`: time to the next renewal. */
  inject(fault: Fault, by: string, durationMs: number = fault.ttl, leaseMs?: Millis): Injected {
    const { armed, registry, refusal, isProtected, maxTtl, random, isPlanned, onChange, onBegin } =
      this.#parts
    const refused = (why: string): Injected => ({ ok: false, why })
    const why = refusal()
    if (why !== undefined) return refused(why)
    const limited = { ...fault, ttl: Math.min(durationMs, maxTtl()) }
    const [finding] = [
      ...faultFindings(limited, maxTtl(), registry),
      ...protectedFindings(limited, isProtected, registry),
    ]
    if (finding !== undefined) return refused(`${finding.path.join('.')}: ${finding.message}`)
    if (isPlanned(fault.name) || armed.get(fault.name) !== undefined) {
      return refused(`there is a fault "${fault.name}" already`)
    }
    const count = this.list().length
    if (count >= MAX_RUNTIME_FAULTS) return refused(`too many faults (${count} of ${MAX_RUNTIME_FAULTS})`)
    const number = this.#nextNumber()
    onBegin()
    const id = idOf((this.#made = number))
    this.#names.set(id, fault.name)
    armed.change([limited], random(), { id })
    const { counts } = armed.get(fault.name)!
    if (leaseMs !== undefined) this.#lease(id, leaseMs)
    onChange('injected', by, { id, fault: limited, ...(leaseMs !== undefined && { leaseMs }) })
    return { ok: true, id, counts }
  }

  /** Renews the leases of faults. Returns the ids of faults already ended. */
  renew(ids: readonly string[]): readonly string[] {
    const present = new Set(this.list().map(({ id }) => id))
    for (const id of ids) {
      const lease = this.#leases.get(id)
      if (lease !== undefined) this.#lease(id, lease.ms)
    }
    return ids.filter((id) => !present.has(id))
  }

  /** Ends a fault, by its id or its name, and releases its calls. */
  clear(idOrName: string, by: string, why?: string): Done {
    const faults = this.list()
    const fault = faults.find(({ id }) => id === idOrName) ?? faults.find(({ name }) => name === idOrName)
    if (fault === undefined) return { ok: false, why: `there is no fault ${idOrName.slice(0, 64)}` }
    const { id, name } = fault
    this.#forget(id)
    this.#end([name], by, { id, fault: name, ...(why !== undefined && { why }) })
    return DONE
  }

  /** Ends all runtime faults; the plan's faults stay. Returns the number of ended faults. */
  clearAll(by: string): number {
    const names = this.list().map(({ name }) => name)
    for (const id of [...this.#names.keys()]) this.#forget(id)
    if (names.length > 0) this.#end(names, by, { faults: names.length })
    return names.length
  }

  /** Returns the armed runtime faults, and deletes the records of ended faults. */
  list(): readonly { readonly id: string; readonly name: string }[] {
    for (const [id, name] of this.#names) if (this.#parts.armed.get(name)?.id !== id) this.#forget(id)
    return [...this.#names].map(([id, name]) => ({ id, name }))
  }

  #lease(id: string, ms: Millis): void {
    this.#leases.get(id)?.cancel()
    const why = `nobody renewed the lease for ${formatDuration(ms)}`
    this.#leases.set(id, { ms, cancel: this.#parts.clock.after(ms, () => void this.clear(id, 'lease', why)) })
  }

  #forget(id: string): void {
    this.#names.delete(id)
    this.#leases.get(id)?.cancel()
    this.#leases.delete(id)
  }

  #end(names: readonly string[], by: string, detail: Readonly<Record<string, unknown>>): void {
    const { armed, random, onChange } = this.#parts
    armed.change([], random(), { without: names })
    onChange('cleared', by, detail)
  }
}
