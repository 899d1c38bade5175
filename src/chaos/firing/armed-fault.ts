import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import { glob, matcher, type Matcher } from '../../mesh/match.ts'
import { newFaultCounts, type FaultCounts } from '../accounting/counts.ts'
import { decider, type Decider, dependsOnOrder, drawnAs } from '../decide/decide.ts'
import { Recent } from '../../units/recent.ts'
import type { FaultType } from '../fault.ts'
import { type KillSwitch, Release, type ReleaseReason } from '../kill/kill-switch.ts'
import { armMatcher, methodsOf } from '../plan/checks.ts'
import type { Fault } from '../plan/common.ts'

/** The compiled `match` of a fault. */
interface FaultTarget {
  /** Returns true when the fault can hit calls of this server, method and tool. The caller caches the result. */
  readonly subject: Matcher
  /** Returns true when the tenant, the arm and the headers of a call match. */
  readonly call: (call: Call) => boolean
}

/** Compiles the target of a fault. `methods`: the methods its type can hit. */
function targetOf({ match = {} }: Fault, methods: readonly string[]): FaultTarget {
  const holds = matcher(match)
  const hit = new Set(methods)
  const tenant = match.tenant === undefined ? undefined : glob(match.tenant)
  const arm = match.arm === undefined ? undefined : armMatcher(match.arm)
  const headers = Object.entries(match.header ?? {}).map(([name, pattern]) => [name, glob(pattern)] as const)

  function isMeant(call: Call): boolean {
    if (tenant !== undefined && !tenant(call.tenant)) return false
    if (arm !== undefined && !arm(call.record.arm)) return false
    return headers.every(([name, value]) => {
      const held = Object.hasOwn(call.inbound, name) ? call.inbound[name] : undefined
      return held !== undefined && value(typeof held === 'string' ? held : held.join(', '))
    })
  }

  return {
    subject: (server, method, tool) => hit.has(method) && holds(server, method, tool),
    call: isMeant,
  }
}

/**
 * Counts for the limits of a fault. Each arm of an experiment has its own counts, so the same call meets the same
 * faults in all arms.
 */
export interface Uses {
  matched: number
  /** Matching calls the fault hit, or would have hit in shadow mode. */
  hits: number
  /** Calls the fault holds now. */
  concurrent: number
}

const noUses = (): Uses => ({ matched: 0, hits: 0, concurrent: 0 })

/** Maximum number of states that a fault keeps. */
const MAX_MEMORIES = 10_000

interface ArmedParts {
  readonly fault: Fault
  readonly type: FaultType<unknown>
  readonly random: KeyedRandom
  readonly kill: KillSwitch
  /** Time of arming, on the monotonic clock. */
  readonly now: Millis
  /** Id of a fault made by the runtime API; undefined for the plan's faults. */
  readonly id: string | undefined
}

/** An armed fault, with its counts and its state. */
export class ArmedFault {
  readonly fault: Fault
  readonly type: FaultType<unknown>
  readonly id: string | undefined
  readonly target: FaultTarget
  readonly decide: Decider
  readonly subject: string
  readonly orderDependent: boolean
  readonly random: KeyedRandom
  readonly armedAt: Millis
  readonly endsAt: Millis
  /** Counts of agents' calls. */
  readonly counts: FaultCounts = newFaultCounts()
  /** Counts of the gateway's own requests to servers. */
  readonly discovery: FaultCounts = newFaultCounts()
  /** Servers that the fault has not hit, because their tool lists were unknown. */
  readonly awaited = new Set<string>()
  /** The counts of each arm. The key is the argument of `usesIn`. */
  readonly #uses = new Map<string | undefined, Uses>()
  readonly #kill: KillSwitch
  #released = new Release()
  #memory = new Recent<object>(MAX_MEMORIES)

  constructor({ fault, type, random, kill, now, id }: ArmedParts) {
    this.fault = fault
    this.type = type
    this.id = id
    this.target = targetOf(fault, methodsOf(type))
    this.decide = decider(fault, random)
    this.subject = drawnAs(fault)
    this.orderDependent = dependsOnOrder(fault)
    this.random = random
    this.armedAt = now
    this.endsAt = now + fault.ttl
    this.#kill = kill
    this.#follow()
  }

  /** Aborts when the fault ends, and on a kill: all held calls then continue. */
  get released(): Release {
    return this.#released
  }

  /** Returns the counts of agents' calls in an arm (empty: no arm) or, for undefined, of the gateway's own requests. */
  usesIn(arm: string | undefined): Uses {
    let uses = this.#uses.get(arm)
    if (uses === undefined) this.#uses.set(arm, (uses = noUses()))
    return uses
  }

  /** Number of calls that the fault holds now, in all arms, with the gateway's own requests. */
  get concurrent(): number {
    let held = 0
    for (const { concurrent } of this.#uses.values()) held += concurrent
    return held
  }

  memory<State extends object>(key: string, create: () => State): State {
    const known = this.#memory.peek(key)
    if (known !== undefined) return known as State
    const made = create()
    this.#memory.set(key, made)
    return made
  }

  /** Releases the calls held now; the fault stays armed for later calls. */
  release(reason: ReleaseReason): void {
    this.end(reason)
    this.#released = new Release()
    this.#follow()
  }

  /** Releases the held calls and ends the fault. */
  end(reason: ReleaseReason): void {
    this.#kill.signal.removeEventListener('abort', this.#killed)
    this.#released.abort(reason)
  }

  readonly #killed = () => this.#released.abort('killed')

  #follow(): void {
    if (this.#kill.on) this.#killed()
    else this.#kill.signal.addEventListener('abort', this.#killed)
  }
}
