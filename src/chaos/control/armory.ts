import type { Call } from '../../mesh/call.ts'
import type { Cancel, Clock } from '../../mesh/clock.ts'
import type { Dice } from '../../mesh/dice.ts'
import type { FaultRegistry } from '../faults/index.ts'
import { ArmedFault } from '../firing/armed-fault.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import type { ReleaseReason } from '../kill/release.ts'
import type { Fault } from '../plan/common.ts'

export interface ArmoryParts {
  readonly clock: Clock
  readonly kill: KillSwitch
  readonly registry: FaultRegistry
  readonly armOf: (call: Call) => string | undefined
  /** Hears of every change of what is armed. */
  readonly onChange: (faults: readonly ArmedFault[]) => void
  /** Hears of a fault whose time was up; it is gone by then. */
  readonly onExpired: (fault: ArmedFault) => void
}

interface Armed {
  readonly armed: ArmedFault
  readonly cancel: Cancel
}

/** The faults that are armed, each until its time is up: those of the plan first, in its order. */
export class Armory {
  readonly #parts: ArmoryParts
  readonly #held = new Map<string, Armed>()
  #order: ReadonlyMap<string, number> = new Map()

  constructor(parts: ArmoryParts) {
    this.#parts = parts
  }

  get size(): number {
    return this.#held.size
  }

  /** Calls that they hold now; one that several of them hold counts for each. */
  get held(): number {
    let held = 0
    for (const { armed } of this.#held.values()) held += armed.concurrent
    return held
  }

  /** In the order in which they nest: the plan's, then the runtime API's as they came. */
  list(): ArmedFault[] {
    const armed = [...this.#held.values()].map((held) => held.armed)
    const place = ({ fault }: ArmedFault) => this.#order.get(fault.name) ?? Infinity
    // Of two that the plan does not have, the difference is not a number: they stay as they came.
    return armed.sort((a, b) => place(a) - place(b) || 0)
  }

  get(name: string): ArmedFault | undefined {
    return this.#held.get(name)?.armed
  }

  /** Arms faults that are not armed yet, and lets go of those named in `without`. `order`: names, as the plan has them. */
  change(
    faults: readonly Fault[],
    dice: Dice,
    { without = [], order, id }: { without?: readonly string[]; order?: readonly string[]; id?: string } = {},
  ): void {
    const { clock, kill, registry, armOf } = this.#parts
    if (order !== undefined) this.#order = new Map(order.map((name, place) => [name, place]))
    for (const name of without) this.#drop(name, 'ended')
    for (const fault of faults) {
      const type = registry[fault.type]
      if (type === undefined || this.#held.has(fault.name)) continue
      const armed = new ArmedFault({ fault, type, dice, kill, now: clock.now(), armOf, id })
      const cancel = clock.after(fault.ttl, () => this.#expire(armed))
      this.#held.set(fault.name, { armed, cancel })
    }
    this.#tell()
  }

  /** Lets go of everything. */
  clear(reason: ReleaseReason): void {
    for (const name of [...this.#held.keys()]) this.#drop(name, reason)
    this.#tell()
  }

  /** Lets go of the calls that are held; everything stays armed for others. */
  release(reason: ReleaseReason): void {
    for (const { armed } of this.#held.values()) armed.release(reason)
  }

  #expire(armed: ArmedFault): void {
    this.#drop(armed.fault.name, 'ended')
    this.#tell()
    this.#parts.onExpired(armed)
  }

  #drop(name: string, reason: ReleaseReason): void {
    const held = this.#held.get(name)
    if (held === undefined) return
    this.#held.delete(name)
    held.cancel()
    held.armed.end(reason)
  }

  #tell(): void {
    this.#parts.onChange(this.list())
  }
}
