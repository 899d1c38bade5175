import { type Call, type CallRecord, requestIdOf } from '../../mesh/call.ts'
import { type InjectedFault, injectedFaults } from '../../mesh/injected.ts'
import type { Millis, Clock } from '../../mesh/clock.ts'
import type { Effect } from '../../mesh/policy.ts'
import { stepOf } from '../../protocol/task.ts'
import { drawKeyOf, type Identity, Identities } from '../decide/call-key.ts'
import { joined, type Facts, type Decision, type Step } from '../decide/decide.ts'
import { Recent } from '../../units/recent.ts'
import { refusalOf } from '../fault.ts'
import type { ChaosEvent } from '../events.ts'
import type { Because, DecisionEntry } from '../journal/entry.ts'
import type { Journal } from '../journal/journal.ts'
import type { Fault } from '../plan/common.ts'
import type { ArmedFault, Uses } from './armed-fault.ts'
import { AppliedInjection, type InjectionParts } from './injection.ts'

/** Maximum number of tasks, and of sessions, kept in memory; a forgotten task or session counts as new. */
const MAX_TASKS = 50_000

/** How long faults of a domain share a draw for calls without an intent, in milliseconds. */
const DOMAIN_SLOT_MS = 1_000

/** The position of a call in its task and in time. Decisions depend on the position as well as on the call. */
interface Place {
  readonly task: string | undefined
  readonly step: Step | undefined
  /** True when the position depends on the order of calls. */
  readonly orderDependent: boolean
}

const NOWHERE: Place = { task: undefined, step: undefined, orderDependent: false }

/** Determines the position of calls in tasks and in time, for a single run. */
class Places {
  readonly #startedAt: Millis
  /** The number of each session, in order of arrival. Session ids are random, so draws cannot use them. */
  readonly #sessions = new Recent<number>(MAX_TASKS)
  #arrived = 0
  /** Number of calls per task, by draw name: an unrelated fault must not change another fault's numbers. */
  readonly #counts = new Map<string, Recent<number>>()
  /** The number of each call, shared by all its attempts. */
  readonly #numbers = new WeakMap<CallRecord, Map<string, number>>()

  /** `startedAt`: start of the run, on the monotonic clock. */
  constructor(startedAt: Millis) {
    this.#startedAt = startedAt
  }

  /** Returns the position of a call, as far as the fault needs it. `subject`: the fault's draw name. */
  of(
    { match, when, sticky }: Fault,
    subject: string,
    call: Call,
    { intent, key }: Identity,
    now: Millis,
  ): Place {
    const burst = when?.burst
    const isByTask = match?.tasks !== undefined
    if (burst === undefined && !isByTask) return NOWHERE
    const task = intent === undefined ? this.#session(call) : joined('intent', intent)
    const whole = isByTask ? (task ?? key) : undefined
    const isNamed = intent !== undefined
    if (burst === undefined) return { task: whole, step: undefined, orderDependent: !isNamed }
    if (burst.per === 'call') {
      const told = stepOf(call)
      // Without a task, all calls of a tenant form a single chain.
      const of = task ?? joined('tenant', call.tenant)
      // Each arm of an experiment has its own count.
      const index = told ?? this.#numberOf(call, subject, joined(call.record.arm, of))
      const attempt = sticky ? 1 : call.attempt
      const isTold = told !== undefined && isNamed
      return { task: whole, step: { per: 'call', of, index, attempt }, orderDependent: !isTold }
    }
    if (burst.per === 'intent' && intent !== undefined)
      return { task: whole, step: inRow(intent), orderDependent: false }
    return { task: whole, step: { per: 'slot', index: this.#slot(now, burst.slot) }, orderDependent: true }
  }

  /**
   * Returns the key of a draw about a call. In a domain, all calls of an intent share a key, or else all calls in a
   * time slot.
   */
  drawKey(fault: Fault, identity: Identity, attempt: number, now: Millis): string {
    if (fault.domain === undefined) return drawKeyOf(identity, attempt, fault.sticky)
    const { intent } = identity
    return intent === undefined ? joined('slot', this.#slot(now, DOMAIN_SLOT_MS)) : joined('intent', intent)
  }

  #slot(now: Millis, length: Millis): number {
    return Math.max(0, Math.floor((now - this.#startedAt) / length))
  }

  /** Returns the key of the caller's session; undefined for callers without a session. */
  #session({ caller }: Call): string | undefined {
    if (caller.era === 'modern') return undefined
    const known = this.#sessions.get(caller.id)
    const number = known ?? this.#arrived++
    if (known === undefined) this.#sessions.set(caller.id, number)
    return joined('session', number)
  }

  #numberOf({ record }: Call, subject: string, task: string): number {
    let numbers = this.#numbers.get(record)
    if (numbers === undefined) this.#numbers.set(record, (numbers = new Map<string, number>()))
    const known = numbers.get(subject)
    if (known !== undefined) return known
    let counts = this.#counts.get(subject)
    if (counts === undefined) this.#counts.set(subject, (counts = new Recent(MAX_TASKS)))
    const number = counts.peek(task) ?? 0
    counts.set(task, number + 1)
    numbers.set(subject, number)
    return number
  }
}

/**
 * Returns the step of an intent in the chain of intents whose names differ only in the final number: `run-17` is step
 * 17 of `run-`. An intent without a number is its own chain. So the order of arrival does not matter.
 */
function inRow(intent: string): Step {
  const [, of = intent, number = '0'] = /^(.*?)(\d{1,9})$/s.exec(intent) ?? []
  return { per: 'intent', of, index: Number(number) }
}

interface InjectionDeciderParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly effectOf: (call: Call) => Effect
  readonly awaitsList?: (server: string) => boolean
  readonly emit: (event: ChaosEvent) => void
}

/** The sender of a request to a server: an agent, or the gateway on its own behalf, with no agent waiting. */
export type Asker = 'agent' | 'discovery'

interface DecidingFor {
  /** True in shadow mode: faults are decided, but have no effect. */
  readonly shadow: boolean
  readonly asker: Asker
}

/** Decides whether faults hit a call, and journals each decision. */
export class InjectionDecider {
  readonly #parts: InjectionDeciderParts
  readonly #injectionParts: InjectionParts
  readonly #identities = new Identities()
  #places: Places

  constructor(parts: InjectionDeciderParts, injectionParts: InjectionParts) {
    this.#parts = parts
    this.#injectionParts = injectionParts
    this.#places = new Places(parts.clock.now())
  }

  /** Begins a run: occurrences, tasks and time slots count from the first again. */
  begin(): void {
    this.#identities.clear()
    this.#places = new Places(this.#parts.clock.now())
  }

  identify(call: Call): Identity {
    return this.#identities.of(call)
  }

  /**
   * Returns the injection of a fault into a call, and counts it against the fault's limits; undefined when the fault
   * does not hit.
   */
  decide(
    armed: ArmedFault,
    call: Call,
    identity: Identity,
    { shadow, asker }: DecidingFor,
  ): AppliedInjection | undefined {
    if (!armed.target.call(call)) return undefined
    const { fault } = armed
    const tally = asker === 'agent' ? armed.counts : armed.discovery
    const now = this.#parts.clock.now()
    const uses = armed.usesIn(asker === 'agent' ? call.record.arm : undefined)
    uses.matched++
    tally.decided++
    const place = this.#places.of(fault, armed.subject, call, identity, now)
    const facts: Facts = {
      drawKey: this.#places.drawKey(fault, identity, call.attempt, now),
      task: place.task,
      count: uses.matched,
      sinceMs: now - armed.armedAt,
      step: place.step,
    }
    const decision = armed.decide(facts)
    const isMissed = decision.because === 'rate' || decision.because === 'schedule'
    const isCaught = isMissed && armed.type.catches?.(call, armed) === true
    const because =
      (isCaught ? undefined : decision.because) ?? this.#limit(armed, uses, call, { shadow, isCaught })
    if (because === 'overflow') tally.overflow++
    if (decision.because !== undefined && !isCaught && !this.#parts.journal.keepsMisses) return undefined
    const orderDependent = isCaught || armed.orderDependent || identity.orderDependent || place.orderDependent
    const entry = this.#write(
      armed,
      call,
      identity,
      { ...facts, ...decision, orderDependent, isCaught },
      because,
    )
    if (because !== undefined && because !== 'shadow') return undefined
    const { name, type, side } = fault
    const status = because === undefined ? 'applied' : 'shadow'
    const injected: InjectedFault = { name, type, side, attempt: call.attempt, status }
    injectedFaults.note(call.record, [...(injectedFaults.of(call.record) ?? []), injected])
    uses.hits++
    if (because === 'shadow') return void tally.shadowed++
    tally.injected++
    tally.hits++
    uses.concurrent++
    const key = drawKeyOf(identity, call.attempt, fault.sticky)
    return new AppliedInjection(armed, { tally, uses }, key, entry, injected, this.#injectionParts)
  }

  /** Returns why a fault does not hit a call that the draw chose; undefined when the fault hits. */
  #limit(
    armed: ArmedFault,
    uses: Uses,
    call: Call,
    { shadow, isCaught }: { readonly shadow: boolean; readonly isCaught: boolean },
  ): Because | undefined {
    const { fault, type } = armed
    const mayHitWrites = fault.allowWrites || type.withholds === true
    if (!mayHitWrites && call.tool !== undefined) {
      const effect = this.#parts.effectOf(call)
      if (effect !== 'read_only') return effect === 'unknown' ? this.#unknown(armed, call.server) : 'write'
    }
    if (fault.side === 'upstream') {
      const kind = this.#injectionParts.faultEnvironment.kindOf(call)
      if (kind !== undefined && refusalOf(type, kind) !== undefined) return 'refused'
    }
    if (!isCaught && uses.hits >= (fault.maxInjections ?? Infinity)) return 'max_injections'
    if (uses.concurrent >= fault.maxConcurrent) return 'overflow'
    return shadow ? 'shadow' : undefined
  }

  /**
   * Returns why the fault spares a tool of unknown effect. When only the server's list is missing, emits an event once.
   */
  #unknown({ fault, awaited }: ArmedFault, server: string): Because {
    if (this.#parts.awaitsList?.(server) !== true) {
      awaited.delete(server)
      return 'write'
    }
    if (!awaited.has(server)) {
      awaited.add(server)
      const why = `${fault.name} spares calls of ${server}, because the list of ${server} is not known`
      this.#parts.emit({ type: 'list_unknown', why, detail: { fault: fault.name, server } })
    }
    return 'list_unknown'
  }

  #write(
    { fault }: ArmedFault,
    call: Call,
    identity: Identity,
    decided: Facts & Decision & { readonly orderDependent: boolean; readonly isCaught: boolean },
    because: Because | undefined,
  ): DecisionEntry {
    const { server, method, tool, caller, attempt } = call
    const id = requestIdOf(call)
    return this.#parts.journal.decision({
      kind: 'decision',
      seq: this.#parts.journal.nextSeq(),
      at: this.#parts.clock.wall(),
      fault: fault.name,
      type: fault.type,
      side: fault.side,
      callKey: identity.key,
      orderDependent: decided.orderDependent,
      drawKey: decided.drawKey,
      task: decided.task,
      u: decided.u,
      rate: decided.rate,
      count: decided.count,
      sinceMs: decided.sinceMs,
      step: decided.step,
      attempt,
      decision: because === undefined ? 'injected' : 'not_injected',
      because,
      ...(decided.isCaught && { isCaught: true as const }),
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
