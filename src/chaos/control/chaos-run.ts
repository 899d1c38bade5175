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
  /** Called after each change, with all armed faults. */
  readonly onChange: (faults: readonly ArmedFault[]) => void
  /** Called with an expired fault, after its removal. */
  readonly onExpired: (fault: ArmedFault) => void
}

interface Armed {
  readonly armed: ArmedFault
  readonly cancel: Cancel
}

/** Holds the armed faults, and ends each fault when its `ttl` is over. */
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

  /** Number of held calls; a call held by several faults counts for each. */
  get held(): number {
    let held = 0
    for (const { armed } of this.#held.values()) held += armed.concurrent
    return held
  }

  /**
   * Returns the armed faults, outermost first: the faults of the plan in its order, then the runtime API's by arrival.
   */
  list(): ArmedFault[] {
    const armed = [...this.#held.values()].map((held) => held.armed)
    const place = ({ fault }: ArmedFault) => this.#order.get(fault.name) ?? Infinity
    // Two faults outside of the plan compare as NaN (Infinity - Infinity): `|| 0` keeps their order.
    return armed.sort((a, b) => place(a) - place(b) || 0)
  }

  get(name: string): ArmedFault | undefined {
    return this.#held.get(name)?.armed
  }

  /** Arms new faults, and ends the faults named in `without`. `order`: the names of the plan's faults, in order. */
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

  clear(reason: ReleaseReason): void {
    for (const name of [...this.#held.keys()]) this.#drop(name, reason)
    this.#tell()
  }

  /**
   * Releases held calls; all faults stay armed. With `servers`, releases only calls held by faults that match one of
   * these servers.
   */
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

/** Maximum number of faults, armed or ended, whose counters stay readable. */
const MAX_RUNS = 2_000

interface ChaosRunParts {
  readonly clock: Clock
  readonly kill: KillSwitch
  readonly registry: FaultRegistry
  readonly engine: Engine
  readonly onExpired: (name: string) => void
  readonly onEnd: (by: string, why: string) => void
  /** Called with the faults that were just armed or have just ended. */
  readonly onTurned: (faults: readonly Fault[]) => void
}

/** Arms and ends faults of the plan and of the runtime API. The caller first checks that faults may be armed. */
export class ChaosRun {
  readonly armed: ArmedFaults
  readonly lease: RunLease
  readonly #engine: Engine
  readonly #onEnd: ChaosRunParts['onEnd']
  readonly #onTurned: ChaosRunParts['onTurned']
  #before: readonly ArmedFault[] = []
  readonly #latest = new Recent<ArmedFault>(MAX_RUNS)
  #planned = false

  constructor({ clock, kill, registry, engine, onExpired, onEnd, onTurned }: ChaosRunParts) {
    this.#engine = engine
    this.#onEnd = onEnd
    this.#onTurned = onTurned
    this.lease = new RunLease(clock, () => onEnd('lease', 'nobody renewed the lease'))
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

  /** True while the plan is armed. Faults of the runtime API may be armed without the plan. */
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

  /** Arms each fault of a plan that is not armed yet. */
  arm({ faults, seed, lease }: ChaosConfig): void {
    this.begin(lease)
    this.lease.renew(lease)
    this.#planned = true
    this.armed.change(faults, createKeyedRandom(seed), { order: faults.map(({ name }) => name) })
  }

  /**
   * Replaces the armed plan. Unchanged faults stay armed, but with another seed every fault is armed anew. An empty
   * plan disarms the plan; faults of the runtime API stay.
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

/** Ends a run when nobody renews its lease in time. */
class RunLease {
  readonly #clock: Clock
  readonly #onEnd: () => void
  #cancel: Cancel | undefined
  #endsAt: Millis = 0

  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock
    this.#onEnd = onEnd
  }

  /** Time until the lease ends, in milliseconds; undefined while there is no lease. */
  get remainingMs(): Millis | undefined {
    return this.#cancel === undefined ? undefined : Math.max(0, this.#endsAt - this.#clock.now())
  }

  /** Lets the lease end `ms` milliseconds from now; with undefined, the run needs no lease. */
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
