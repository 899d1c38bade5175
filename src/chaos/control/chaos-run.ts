import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { createKeyedRandom, type KeyedRandom } from '../../mesh/keyed-random.ts'
import { glob } from '../../mesh/match.ts'
import { Recent } from '../../units/recent.ts'
import type { FaultRegistry } from '../faults/index.ts'
import { ArmedFault } from '../firing/armed-fault.ts'
import type { Engine } from '../firing/engine.ts'
import type { KillSwitch, ReleaseReason } from '../kill/kill-switch.ts'
import type { Fault } from '../plan/common.ts'
import { diffPlans, type ChaosConfig } from '../plan/schema.ts'

interface ArmedFaultsParts {
  readonly clock: Clock
  readonly kill: KillSwitch
  readonly registry: FaultRegistry
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
export class ArmedFaults {
  readonly #parts: ArmedFaultsParts
  readonly #held = new Map<string, Armed>()
  #order: ReadonlyMap<string, number> = new Map()

  constructor(parts: ArmedFaultsParts) {
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
    // Two faults that the plan does not have differ by NaN (Infinity - Infinity): `|| 0` keeps them as they came.
    return armed.sort((a, b) => place(a) - place(b) || 0)
  }

  get(name: string): ArmedFault | undefined {
    return this.#held.get(name)?.armed
  }

  /** Arms faults that are not armed yet, and lets go of those named in `without`. `order`: names, as the plan has them. */
  change(
    faults: readonly Fault[],
    random: KeyedRandom,
    { without = [], order, id }: { without?: readonly string[]; order?: readonly string[]; id?: string } = {},
  ): void {
    const { clock, kill, registry } = this.#parts
    if (order !== undefined) this.#order = new Map(order.map((name, place) => [name, place]))
    for (const name of without) this.#drop(name, 'ended')
    for (const fault of faults) {
      const type = registry[fault.type]
      if (type === undefined || this.#held.has(fault.name)) continue
      const armed = new ArmedFault({ fault, type, random, kill, now: clock.now(), id })
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

  /** Lets go of the calls that are held; everything stays armed for others. `servers`: only by faults that can hit one of them. */
  release(reason: ReleaseReason, servers?: readonly string[]): void {
    for (const { armed } of this.#held.values()) {
      const reaches = glob(armed.fault.match?.server ?? '*')
      if (servers === undefined || servers.some(reaches)) armed.release(reason)
    }
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

/** Most faults that are gone and whose counters can still be read. */
const MAX_RUNS = 2_000

interface ChaosRunParts {
  readonly clock: Clock
  readonly kill: KillSwitch
  readonly registry: FaultRegistry
  readonly engine: Engine
  /** Hears of a fault whose time was up. */
  readonly onExpired: (name: string) => void
  /** Hears that the run is to end, by whose doing and why. */
  readonly onEnd: (by: string, why: string) => void
  /** Hears which faults were armed or are armed no more: what they do to calls is over, or begins. */
  readonly onTurned: (faults: readonly Fault[]) => void
}

/** The faults that are armed at present, and the time that they have. The caller decides whether faults may be armed. */
export class ChaosRun {
  readonly armed: ArmedFaults
  readonly lease: RunLease
  readonly #engine: Engine
  readonly #onEnd: ChaosRunParts['onEnd']
  readonly #onTurned: ChaosRunParts['onTurned']
  #before: readonly ArmedFault[] = []
  /** The latest run of each fault, by name. */
  readonly #latest = new Recent<ArmedFault>(MAX_RUNS)
  #planned = false

  constructor({ clock, kill, registry, engine, onExpired, onEnd, onTurned }: ChaosRunParts) {
    this.#engine = engine
    this.#onEnd = onEnd
    this.#onTurned = onTurned
    this.lease = new RunLease(clock, () => onEnd('lease', 'nobody renewed it'))
    this.armed = new ArmedFaults({
      clock,
      kill,
      registry,
      onChange: (faults) => this.#changed(faults),
      onExpired: ({ fault }) => {
        onExpired(fault.name)
        if (this.armed.size === 0) onEnd('ttl', 'the time of the last fault was up')
      },
    })
  }

  /** Whether the plan is armed: faults of the runtime API may be when it is not. */
  get planned(): boolean {
    return this.#planned
  }

  latest(name: string): ArmedFault | undefined {
    return this.#latest.peek(name)
  }

  /** Begins a run if none is under way. */
  begin(lease: number | undefined): void {
    if (this.armed.size > 0) return
    this.#engine.begin()
    this.lease.renew(lease)
  }

  /** Arms the faults of a plan that are not armed. */
  arm({ faults, seed, lease }: ChaosConfig): void {
    this.begin(lease)
    this.lease.renew(lease)
    this.#planned = true
    this.armed.change(faults, createKeyedRandom(seed), { order: faults.map(({ name }) => name) })
  }

  /**
   * Puts a plan in place of the one that is armed. Unchanged faults stay; another seed changes everything. After a
   * plan without faults no plan is armed, and faults of the runtime API stay.
   */
  replace(before: ChaosConfig, { faults, seed, lease }: ChaosConfig, by: string): void {
    const { added, removed, changed, kept } = diffPlans(before.faults, faults)
    const again = seed === before.seed ? [] : kept.filter((name) => this.armed.get(name) !== undefined)
    if (seed !== before.seed) this.#engine.begin()
    const fresh = new Set([...added, ...changed, ...again])
    const order = faults.map(({ name }) => name)
    const without = [...removed, ...fresh]
    const arming = faults.filter(({ name }) => fresh.has(name))
    this.armed.change(arming, createKeyedRandom(seed), { without, order })
    if (lease !== before.lease) this.lease.renew(lease)
    if (this.armed.size === 0) return this.#onEnd(by, 'the plan has no faults')
    if (faults.length > 0) return
    this.#planned = false
    this.lease.stop()
  }

  /** Ends everything, and lets go of the calls that are held. */
  stop(reason: ReleaseReason): void {
    this.#planned = false
    this.lease.stop()
    this.armed.clear(reason)
  }

  #changed(faults: readonly ArmedFault[]): void {
    for (const armed of faults) this.#latest.set(armed.fault.name, armed)
    this.#engine.arm(faults)
    const [before, after] = [new Set(this.#before), new Set(faults)]
    const turned = [
      ...this.#before.filter((old) => !after.has(old)),
      ...faults.filter((now) => !before.has(now)),
    ]
    this.#before = faults
    if (turned.length > 0) this.#onTurned(turned.map(({ fault }) => fault))
  }
}

/** Ends what nobody renews. */
class RunLease {
  readonly #clock: Clock
  readonly #onEnd: () => void
  #cancel: Cancel | undefined
  #endsAt: Millis = 0

  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock
    this.#onEnd = onEnd
  }

  /** Time left; undefined while it is not running. */
  get remainingMs(): Millis | undefined {
    return this.#cancel === undefined ? undefined : Math.max(0, this.#endsAt - this.#clock.now())
  }

  /** Runs for `ms` from now; undefined: without an end. */
  renew(ms: Millis | undefined): void {
    this.stop()
    if (ms === undefined) return
    this.#endsAt = this.#clock.now() + ms
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined
      this.#onEnd()
    })
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }
}
