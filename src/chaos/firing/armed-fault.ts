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

/** A compiled target. */
interface FaultTarget {
  /** Whether calls of this kind can be hit at all: the same for all of them, so that the answer can be kept. */
  readonly subject: Matcher
  /** Whether this very call is meant. */
  readonly call: (call: Call) => boolean
}

/** Compiles what a fault aims at. `methods`: those that its type can hit. */
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
 * Counts for the limits of a fault. Each arm of an experiment has counts of its own, so that the same call meets the same
 * in all arms.
 */
export interface Uses {
  /** Calls that matched. */
  matched: number
  /** Matching calls that the fault hit, or would have hit in shadow mode. */
  hits: number
  /** Calls that it holds now. */
  concurrent: number
}

const noUses = (): Uses => ({ matched: 0, hits: 0, concurrent: 0 })

/** Most things that one fault remembers. */
const MAX_MEMORIES = 10_000

interface ArmedParts {
  readonly fault: Fault
  readonly type: FaultType<unknown>
  readonly random: KeyedRandom
  readonly kill: KillSwitch
  /** When it is armed, on the monotonic clock. */
  readonly now: Millis
  /** Whether the runtime API made it, rather than the plan. */
  readonly id: string | undefined
}

/** A fault that is armed, with all that it counts and remembers meanwhile. */
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
  /** Counts of the requests that the gateway sends servers by itself. */
  readonly discovery: FaultCounts = newFaultCounts()
  /** Servers whose calls it has left alone because their lists were not known. */
  readonly awaited = new Set<string>()
  /** By arm, as `usesIn` is asked. */
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

  /** Lets go of what it holds: aborts when it ends, and when everything is killed. */
  get released(): Release {
    return this.#released
  }

  /** Returns the counts of agents' calls in an arm, empty for no arm; undefined: the counts of the gateway's own requests. */
  usesIn(arm: string | undefined): Uses {
    let uses = this.#uses.get(arm)
    if (uses === undefined) this.#uses.set(arm, (uses = noUses()))
    return uses
  }

  /** Calls that it holds now, of everybody. */
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

  /** Lets go of the calls that it holds now; it stays armed for others. */
  release(reason: ReleaseReason): void {
    this.end(reason)
    this.#released = new Release()
    this.#follow()
  }

  /** Lets go of the calls that it holds, for good. */
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
