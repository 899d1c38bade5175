import type { Call } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { createDice } from '../../mesh/dice.ts'
import { Recent } from '../decide/recent.ts'
import type { FaultRegistry } from '../faults/index.ts'
import type { ArmedFault } from '../firing/armed-fault.ts'
import type { Engine } from '../firing/engine.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import type { ReleaseReason } from '../kill/release.ts'
import { diffPlans } from '../plan/diff.ts'
import type { ChaosConfig } from '../plan/schema.ts'
import { Armory } from './armory.ts'
import { Lease } from './lease.ts'

/** Most faults that are gone and whose counters can still be read. */
const MAX_RUNS = 2_000

export interface RunParts {
  readonly clock: Clock
  readonly kill: KillSwitch
  readonly registry: FaultRegistry
  readonly armOf: (call: Call) => string | undefined
  readonly engine: Engine
  /** Hears of a fault whose time was up. */
  readonly onExpired: (name: string) => void
  /** Hears that the run is to end, by whose doing and why. */
  readonly onEnd: (by: string, why: string) => void
}

/** What is armed at present, and for how long; whether it may be is for others to say. */
export class Run {
  readonly armory: Armory
  readonly lease: Lease
  readonly #engine: Engine
  readonly #onEnd: RunParts['onEnd']
  /** The latest run of each fault, by name. */
  readonly #latest = new Recent<ArmedFault>(MAX_RUNS)
  #planned = false

  constructor({ clock, kill, registry, armOf, engine, onExpired, onEnd }: RunParts) {
    this.#engine = engine
    this.#onEnd = onEnd
    this.lease = new Lease(clock, () => onEnd('lease', 'nobody renewed it'))
    this.armory = new Armory({
      clock,
      kill,
      registry,
      armOf,
      onChange: (faults) => this.#changed(faults),
      onExpired: ({ fault }) => {
        onExpired(fault.name)
        if (this.armory.size === 0) onEnd('ttl', 'the time of the last fault was up')
      },
    })
  }

  /** Whether the plan is armed: faults of the runtime API may be when it is not. */
  get planned(): boolean {
    return this.#planned
  }

  latest(name: string): ArmedFault | undefined {
    return this.#latest.get(name)
  }

  /** Begins a run if none is under way. */
  begin(lease: number | undefined): void {
    if (this.armory.size > 0) return
    this.#engine.begin()
    this.lease.renew(lease)
  }

  /** Arms the faults of a plan that are not armed. */
  arm({ faults, seed, lease }: ChaosConfig): void {
    this.begin(lease)
    this.lease.renew(lease)
    this.#planned = true
    this.armory.change(faults, createDice(seed), { order: faults.map(({ name }) => name) })
  }

  /** Puts a plan in place of the one that is armed. What did not change stays; another seed changes everything. */
  replace(before: ChaosConfig, { faults, seed, lease }: ChaosConfig, by: string): void {
    const { added, removed, changed, kept } = diffPlans(before.faults, faults)
    const again = seed === before.seed ? [] : kept.filter((name) => this.armory.get(name) !== undefined)
    if (again.length > 0) this.#engine.begin()
    const fresh = new Set([...added, ...changed, ...again])
    const order = faults.map(({ name }) => name)
    const without = [...removed, ...fresh]
    const arming = faults.filter(({ name }) => fresh.has(name))
    this.armory.change(arming, createDice(seed), { without, order })
    if (lease !== before.lease) this.lease.renew(lease)
    if (this.armory.size === 0) this.#onEnd(by, 'the plan has no faults')
  }

  /** Ends everything, and lets go of the calls that are held. */
  stop(reason: ReleaseReason): void {
    this.#planned = false
    this.lease.stop()
    this.armory.clear(reason)
  }

  #changed(faults: readonly ArmedFault[]): void {
    for (const armed of faults) this.#latest.set(armed.fault.name, armed)
    this.#engine.arm(faults)
  }
}
