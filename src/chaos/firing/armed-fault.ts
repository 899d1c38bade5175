import type { Call } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Dice } from '../../mesh/dice.ts'
import { newTally, type Tally } from '../accounting/tally.ts'
import { decider, type Decider, dependsOnOrder, drawnAs } from '../decide/decide.ts'
import { type Target, targetOf } from '../decide/match.ts'
import { Recent } from '../decide/recent.ts'
import type { FaultType } from '../fault.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import { Release, type ReleaseReason } from '../kill/release.ts'
import { methodsOf } from '../plan/checks.ts'
import type { Fault } from '../plan/common.ts'

/** Most things that one fault remembers. */
const MAX_MEMORIES = 10_000

interface ArmedParts {
  readonly fault: Fault
  readonly type: FaultType<unknown>
  readonly dice: Dice
  readonly kill: KillSwitch
  /** When it is armed, on the monotonic clock. */
  readonly now: Millis
  readonly armOf: (call: Call) => string | undefined
  /** Whether the runtime API made it, rather than the plan. */
  readonly id: string | undefined
}

/** A fault that is armed, with all that it counts and remembers meanwhile. */
export class ArmedFault {
  readonly fault: Fault
  readonly type: FaultType<unknown>
  readonly id: string | undefined
  readonly target: Target
  readonly decide: Decider
  readonly subject: string
  readonly orderDependent: boolean
  readonly dice: Dice
  readonly armedAt: Millis
  readonly endsAt: Millis
  readonly tally: Tally = newTally()
  /** Calls that matched. */
  count = 0
  /** Calls that it holds now. */
  concurrent = 0
  readonly #kill: KillSwitch
  #released = new Release()
  #memory = new Recent<object>(MAX_MEMORIES)

  constructor({ fault, type, dice, kill, now, armOf, id }: ArmedParts) {
    this.fault = fault
    this.type = type
    this.id = id
    this.target = targetOf(fault, methodsOf(type), armOf)
    this.decide = decider(fault, dice)
    this.subject = drawnAs(fault)
    this.orderDependent = dependsOnOrder(fault)
    this.dice = dice
    this.armedAt = now
    this.endsAt = now + fault.ttl
    this.#kill = kill
    this.#follow()
  }

  /** Lets go of what it holds: aborts when it ends, and when everything is killed. */
  get released(): Release {
    return this.#released
  }

  memory<State extends object>(key: string, create: () => State): State {
    const known = this.#memory.get(key)
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
