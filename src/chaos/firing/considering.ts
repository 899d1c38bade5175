import type { Call, InjectedFault } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Effect } from '../../mesh/policy.ts'
import { drawKeyOf, Identities, type Identity } from '../decide/call-key.ts'
import type { Decision, Facts } from '../decide/decide.ts'
import { Steps } from '../decide/steps.ts'
import type { Because, DecisionEntry } from '../journal/entry.ts'
import type { Journal } from '../journal/journal.ts'
import type { ArmedFault } from './armed-fault.ts'
import { FiredShot, type ShotParts } from './shot.ts'

export interface ConsideringParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly effectOf: (call: Call) => Effect
}

/** Decides whether faults hit a call, and writes each decision down. */
export class Considering {
  readonly #parts: ConsideringParts
  readonly #shotParts: ShotParts
  readonly #identities = new Identities()
  #steps: Steps

  constructor(parts: ConsideringParts, shotParts: ShotParts) {
    this.#parts = parts
    this.#shotParts = shotParts
    this.#steps = new Steps(parts.clock.now())
  }

  /** Begins a run: occurrences, intents and slots of time are counted from the first again. */
  begin(): void {
    this.#identities.clear()
    this.#steps = new Steps(this.#parts.clock.now())
  }

  identify(call: Call): Identity {
    return this.#identities.of(call)
  }

  /** One firing of `armed` at `call`, which holds one of its places from now on; undefined when it is not hit. */
  consider(armed: ArmedFault, call: Call, identity: Identity, shadow: boolean): FiredShot | undefined {
    if (!armed.target.call(call)) return undefined
    const { fault, tally } = armed
    const now = this.#parts.clock.now()
    armed.count++
    tally.decided++
    const facts: Facts = {
      drawKey: this.#steps.drawKey(fault, identity, call.attempt, now),
      count: armed.count,
      sinceMs: now - armed.armedAt,
      step: this.#steps.stepOf(fault, armed.subject, identity.intent, now),
    }
    const decision = armed.decide(facts)
    const because = decision.because ?? this.#limit(armed, call, shadow)
    const entry = this.#write(armed, call, identity, facts, decision, because)
    if (because !== undefined && because !== 'shadow') return undefined
    const { name, type, side } = fault
    const status = because === undefined ? 'applied' : 'shadow'
    const injected: InjectedFault = { name, type, side, attempt: call.attempt, status }
    call.record.faults ??= []
    call.record.faults.push(injected)
    if (because === 'shadow') return void tally.shadowed++
    tally.hits++
    armed.concurrent++
    const key = drawKeyOf(identity, call.attempt, fault.sticky)
    return new FiredShot(armed, key, entry, injected, this.#shotParts)
  }

  /** Why a call that was drawn is not hit all the same. */
  #limit({ fault, type, tally, concurrent }: ArmedFault, call: Call, shadow: boolean): Because | undefined {
    if (!fault.allowWrites && call.tool !== undefined && this.#parts.effectOf(call) !== 'read_only')
      return 'write'
    if (fault.side === 'upstream' && type.refuses !== undefined) {
      const kind = this.#shotParts.world.kindOf(call)
      if (kind !== undefined && type.refuses(kind) !== undefined) return 'refused'
    }
    if (tally.hits + tally.shadowed >= (fault.maxInjections ?? Infinity)) return 'max_injections'
    if (concurrent >= fault.maxConcurrent) {
      tally.overflow++
      return 'overflow'
    }
    return shadow ? 'shadow' : undefined
  }

  #write(
    { fault, orderDependent }: ArmedFault,
    { server, method, tool, id, caller, attempt }: Call,
    identity: Identity,
    facts: Facts,
    { u }: Decision,
    because: Because | undefined,
  ): DecisionEntry {
    return this.#parts.journal.decision({
      kind: 'decision',
      seq: this.#parts.journal.nextSeq(),
      at: this.#parts.clock.wall(),
      fault: fault.name,
      type: fault.type,
      side: fault.side,
      callKey: identity.key,
      orderDependent: orderDependent || identity.orderDependent,
      drawKey: facts.drawKey,
      u,
      rate: fault.rate,
      count: facts.count,
      sinceMs: facts.sinceMs,
      step: facts.step,
      attempt,
      decision: because === undefined ? 'injected' : 'not_injected',
      because,
      call: {
        server,
        method: method.slice(0, 128),
        tool: tool?.slice(0, 128),
        id: typeof id === 'string' ? id.slice(0, 128) : id,
        caller: caller.id.slice(0, 8),
        intent: identity.intent,
      },
      ...(because === undefined && { status: 'pending' as const }),
    })
  }
}
