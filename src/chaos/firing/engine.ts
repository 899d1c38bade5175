import type { Call, Outcome, Service, Layer } from '../../mesh/call.ts'
import { debugHeader, type FaultFate, injectedFaults, rejectedOver } from '../../mesh/injected.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Effect } from '../../mesh/policy.ts'
import { roundedDuration } from '../../units/duration.ts'
import { Accounting, reportedIn } from '../accounting/accounting.ts'
import { Canaries, Corruptions } from '../accounting/canaries.ts'
import type { ChaosEvent } from '../events.ts'
import type { Side, FaultEnvironment } from '../fault.ts'
import type { Journal } from '../journal/journal.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import type { ArmedFault } from './armed-fault.ts'
import { fire } from './fire.ts'
import { type Asker, InjectionDecider } from './injection-decider.ts'
import type { AppliedInjection } from './injection.ts'

/** Maximum number of kinds of calls in the cache; a full cache is emptied. */
const REMEMBERED = 4096

/** Longest name to cache, in characters: agents may send huge names. */
const LONGEST = 256

/** The faults for a kind of call, in the order of the plan. */
type Aimed = Readonly<Record<Side, readonly ArmedFault[]>>

/** Finds the armed faults for a kind of call. Results are cached, so a call without any fault costs two look-ups. */
class Candidates {
  readonly #faults: readonly ArmedFault[]
  readonly #tools = new Map<string, Map<string, Aimed | undefined>>()
  readonly #methods = new Map<string, Map<string, Aimed | undefined>>()
  #size = 0

  constructor(faults: readonly ArmedFault[]) {
    this.#faults = faults
  }

  /** Returns the faults for calls of this kind; undefined when there are none. */
  of({ server, method, tool }: Pick<Call, 'server' | 'method' | 'tool'>): Aimed | undefined {
    const index = tool === undefined ? this.#methods : this.#tools
    const name = tool ?? method
    const known = index.get(server)
    const found = known?.get(name)
    if (found !== undefined || known?.has(name) === true) return found
    const made = this.#find(server, method, tool)
    if (name.length <= LONGEST) this.#remember(index, server, name, made)
    return made
  }

  #find(server: string, method: string, tool: string | undefined): Aimed | undefined {
    const hit = this.#faults.filter(({ target }) => target.subject(server, method, tool))
    if (hit.length === 0) return undefined
    const on = (side: Side) => hit.filter(({ fault }) => fault.side === side)
    return { upstream: on('upstream'), client: on('client') }
  }

  #remember(
    index: Map<string, Map<string, Aimed | undefined>>,
    server: string,
    name: string,
    aimed: Aimed | undefined,
  ): void {
    if (++this.#size > REMEMBERED) {
      this.#tools.clear()
      this.#methods.clear()
      this.#size = 1
    }
    const known = index.get(server)
    if (known === undefined) index.set(server, new Map([[name, aimed]]))
    else known.set(name, aimed)
  }
}

interface EngineParts {
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  readonly kill: KillSwitch
  readonly journal: Journal
  /**
   * Returns the effect of running a call again. A fault without `allowWrites` hits only read-only tools, unless its
   * type has `withholds`.
   */
  readonly effectOf: (call: Call) => Effect
  /** Returns true for a server that no fault may hit; default: false. Called for each call. */
  readonly isProtected?: (server: string) => boolean
  /**
   * Returns true while the gateway lacks the tool list that would say which tools of a server are read-only; default:
   * false.
   */
  readonly awaitsList?: (server: string) => boolean
  /** Must not throw. */
  readonly emit: (event: ChaosEvent) => void
  /** Called after each bug of the engine or of a fault, with the number of bugs so far. */
  readonly onError: (errors: number) => void
}

/** Decides which faults hit a call, and applies these faults. The controller decides when faults are armed. */
export class Engine {
  /** True while any fault is armed. A plain field: while no fault is armed, reading it is the only cost per call. */
  live = false
  /** True in shadow mode: faults are decided and journaled, but have no effect. */
  shadow = false
  /** True when a response header tells agents which faults have hit their calls. */
  debugHeader = false
  /** True when a bug in the engine fails the call; otherwise the call continues without faults. */
  strict = false
  /** Number of bugs since the run began. */
  errors = 0
  readonly corruptions = new Corruptions<AppliedInjection>()
  readonly accounting: Accounting
  readonly #parts: EngineParts
  readonly #decider: InjectionDecider
  readonly #canaries = new Canaries()
  #candidates = new Candidates([])

  constructor(parts: EngineParts) {
    this.#parts = parts
    const { clock, faultEnvironment, journal } = parts
    const { corruptions } = this
    this.accounting = new Accounting({ clock, journal, corruptions })
    this.#decider = new InjectionDecider(parts, {
      clock,
      faultEnvironment,
      corruptions,
      canaries: this.#canaries,
    })
  }

  /** Replaces the armed faults. */
  arm(faults: readonly ArmedFault[]): void {
    this.#candidates = new Candidates(faults)
    this.live = faults.length > 0
  }

  /** Returns true when a fault armed on this side can hit requests of this method, which are no tool calls. */
  aims(side: Side, server: string, method: string): boolean {
    if (!this.live || this.#parts.kill.on) return false
    return (this.#aimedAt({ server, method, tool: undefined })?.[side].length ?? 0) > 0
  }

  /** Begins a run: all counts of calls and tasks start again. */
  begin(): void {
    this.errors = 0
    this.#decider.begin()
  }

  /** Sends a call through the faults on a side, and returns the outcome. */
  run(side: Side, next: Service, call: Call, asker: Asker = 'agent'): Promise<Outcome> {
    if (side === 'upstream') this.accounting.sentAgain(call)
    // A finished call may still run for other calls that joined it: faults do not hit this run.
    if (this.#parts.kill.on || call.record.isOver) return next(call)
    let injections: AppliedInjection[] | undefined
    try {
      injections = this.#injectionsAt(side, call, asker)
    } catch (cause) {
      return this.#broke(cause, call) ?? next(call)
    }
    if (injections === undefined) return next(call)
    for (const injection of injections) this.accounting.follow(injection)
    return fire(injections, next, call, {
      journal: this.#parts.journal,
      broke: (injection, cause) => this.#broke(cause, call, injection),
    })
  }

  /**
   * Returns the fate of each fault of a call, given the outcome that the agent gets. Call once per call, at its end;
   * never throws.
   */
  account(call: Call, outcome: Outcome): readonly FaultFate[] {
    try {
      if (this.live) this.#noteRejections(call, outcome)
      const fates = this.accounting.account(call, outcome)
      if (this.debugHeader && fates.length > 0) debugHeader.note(call.record, fates.map(inShort).join(', '))
      return fates
    } catch (cause) {
      void this.#broke(cause, call)
      return []
    }
  }

  /**
   * Returns the faults that caused a call's outcome; see `Accounting.culprits`. Call before `account`; never throws.
   */
  culprits(call: Call, outcome: Outcome | undefined): readonly string[] {
    try {
      return this.accounting.culprits(call, outcome)
    } catch (cause) {
      void this.#broke(cause, call)
      return []
    }
  }

  /** Counts a breaker's rejection of a call for the faults that had hit this kind of call before. */
  #noteRejections(call: Call, outcome: Outcome): void {
    const { record } = call
    const isTold = outcome.kind === 'rejected' && outcome.error.reason === BREAKER_OPEN
    const superseded = record.supersededRejections?.filter((reason) => reason === BREAKER_OPEN).length ?? 0
    const times = superseded + (isTold ? 1 : 0)
    if (times === 0) return
    for (const { fault, counts, target } of this.#aimedAt(call)?.upstream ?? []) {
      if (counts.hits === 0 || !target.call(call)) continue
      counts.rejections += times
      const names = Array.from({ length: times }, () => fault.name)
      rejectedOver.note(record, [...(rejectedOver.of(record) ?? []), ...names])
    }
  }

  /** Returns the faults for a call; none for a protected server. */
  #aimedAt(call: Pick<Call, 'server' | 'method' | 'tool'>): Aimed | undefined {
    const aimed = this.#candidates.of(call)
    return aimed !== undefined && this.#parts.isProtected?.(call.server) === true ? undefined : aimed
  }

  #injectionsAt(side: Side, call: Call, asker: Asker): AppliedInjection[] | undefined {
    if (side === 'client') {
      if (this.#canaries.any) this.#lookForCanaries(call)
      this.#hear(call)
    }
    const aimed = this.#aimedAt(call)
    if (aimed === undefined) return undefined
    // Numbers the call at the agents' side already: a policy that stops the call must not change numbers of later calls.
    const identity = this.#decider.identify(call)
    let injections: AppliedInjection[] | undefined
    try {
      for (const armed of aimed[side]) {
        const injection = this.#decider.decide(armed, call, identity, { shadow: this.shadow, asker })
        if (injection !== undefined) (injections ??= []).push(injection)
      }
    } catch (cause) {
      for (const injection of injections ?? []) {
        injection.withdraw()
        this.#parts.journal.finish(injection.entry)
      }
      throw cause
    }
    return injections
  }

  /** Records an agent's report about one of its earlier calls, unless a canary has already shown the outcome. */
  #hear(call: Call): void {
    const said = reportedIn(call)
    if (said !== undefined) this.accounting.report(said.call, said.outcome, { callerId: call.caller.id })
  }

  #lookForCanaries(call: Call): void {
    const found = this.#canaries.in(call)
    if (found.length === 0 || this.#parts.effectOf(call) === 'read_only') return
    for (const entry of found) {
      if (!this.accounting.silent(entry)) continue
      const { server, method, tool } = call
      const detail = { fault: entry.fault, callKey: entry.callKey, server, method, tool }
      this.#parts.emit({ type: 'canary', detail })
    }
  }

  /**
   * Reports a bug. Returns undefined when the call continues without the fault, or a failure when the engine is strict.
   */
  #broke(cause: unknown, call: Call, injection?: AppliedInjection): Promise<Outcome> | undefined {
    this.errors++
    const why = cause instanceof Error ? cause.message : String(cause)
    this.#parts.emit({ type: 'engine_error', why, detail: { fault: injection?.fault, errors: this.errors } })
    this.#parts.onError(this.errors)
    if (!this.strict) return undefined
    const error = gatewayError('internal', 'the chaos engine failed', { sent: call.record.sent })
    return Promise.resolve({ kind: 'failed', error })
  }
}

/** The reason with which breakers reject calls. */
const BREAKER_OPEN = 'breaker_open'

/**
 * Returns a short text about the fate of a fault, such as "slow (conn.latency, delayed by 300 ms)". Names and types
 * contain only characters valid in a header.
 */
function inShort({ fault: { name, type }, fate, delayedMs }: FaultFate): string {
  const by = delayedMs === undefined ? '' : ` by ${roundedDuration(delayedMs)}`
  return `${name} (${type}, ${fate}${by})`
}

/** Returns the layer that applies faults on a side. The layer costs a single branch while no fault is armed. */
export function injector(side: Side, engine: Engine, asker: Asker = 'agent'): Layer {
  // Calls hit by a fault also pass the engine after the fault's end, because the engine counts their retries.
  return (next) => (call) =>
    engine.live || injectedFaults.of(call.record) !== undefined
      ? engine.run(side, next, call, asker)
      : next(call)
}
