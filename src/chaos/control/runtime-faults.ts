import type { Dice } from '../../mesh/dice.ts'
import type { FaultRegistry } from '../faults/index.ts'
import { faultFindings } from '../plan/checks.ts'
import type { Fault } from '../plan/common.ts'
import type { Armory } from './armory.ts'
import { DONE, type Done } from './controller-parts.ts'

/** Most faults of the runtime API at a time. */
export const MAX_RUNTIME_FAULTS = 1_000

export interface RuntimeParts {
  readonly armory: Armory
  readonly registry: FaultRegistry
  /** Why nothing may be armed now; undefined when it may. */
  readonly refusal: () => string | undefined
  readonly maxTtl: () => number
  readonly dice: () => Dice
  /** Whether the plan has a fault of this name. */
  readonly isPlanned: (name: string) => boolean
  /** Hears of each change. */
  readonly onChange: (
    type: 'injected' | 'cleared',
    by: string,
    detail: Readonly<Record<string, unknown>>,
  ) => void
  /** Begins a run if none is under way. */
  readonly onBegin: () => void
}

export type Injected =
  { readonly ok: true; readonly id: string } | { readonly ok: false; readonly why: string }

/** Faults that come and go one by one, at the word of the runtime API: each has an id, and a time to live. */
export class RuntimeFaults {
  readonly #parts: RuntimeParts
  readonly #names = new Map<string, string>()
  #made = 0

  constructor(parts: RuntimeParts) {
    this.#parts = parts
  }

  /** Arms a fault. `durationMs`: how long, in place of its `ttl`; cut to `maxTtl`. */
  inject(fault: Fault, by: string, durationMs: number = fault.ttl): Injected {
    const { armory, registry, refusal, maxTtl, dice, isPlanned, onChange, onBegin } = this.#parts
    const refused = (why: string): Injected => ({ ok: false, why })
    const why = refusal()
    if (why !== undefined) return refused(why)
    const limited = { ...fault, ttl: Math.min(durationMs, maxTtl()) }
    const finding = faultFindings(limited, maxTtl(), registry)[0]
    if (finding !== undefined) return refused(`${finding.path.join('.')}: ${finding.message}`)
    if (isPlanned(fault.name) || armory.get(fault.name) !== undefined) {
      return refused(`there is a fault "${fault.name}" already`)
    }
    const count = this.list().length
    if (count >= MAX_RUNTIME_FAULTS) return refused(`too many faults (${count} of ${MAX_RUNTIME_FAULTS})`)
    onBegin()
    const id = `fault-${++this.#made}`
    this.#names.set(id, fault.name)
    armory.change([limited], dice(), { id })
    onChange('injected', by, { id, fault: limited })
    return { ok: true, id }
  }

  /** Ends a fault, and lets go of what it holds. */
  clear(id: string, by: string): Done {
    const name = this.list().find((listed) => listed.id === id)?.name
    this.#names.delete(id)
    if (name === undefined) return { ok: false, why: `there is no fault ${id.slice(0, 64)}` }
    this.#end([name], by, { id, fault: name })
    return DONE
  }

  /** Ends all of them; those of the plan stay. Returns how many there were. */
  clearAll(by: string): number {
    const names = this.list().map(({ name }) => name)
    this.#names.clear()
    if (names.length > 0) this.#end(names, by, { faults: names.length })
    return names.length
  }

  /** Those that are armed; others are forgotten. */
  list(): readonly { readonly id: string; readonly name: string }[] {
    for (const [id, name] of this.#names) if (this.#parts.armory.get(name)?.id !== id) this.#names.delete(id)
    return [...this.#names].map(([id, name]) => ({ id, name }))
  }

  #end(names: readonly string[], by: string, detail: Readonly<Record<string, unknown>>): void {
    const { armory, dice, onChange } = this.#parts
    armory.change([], dice(), { without: names })
    onChange('cleared', by, detail)
  }
}
