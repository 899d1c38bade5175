import type { Call, FaultFate, Outcome, Service } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Effect } from '../../mesh/policy.ts'
import { Accounting, reportedIn } from '../accounting/accounting.ts'
import { Canaries } from '../accounting/canaries.ts'
import { Corruptions } from '../accounting/corruptions.ts'
import { Candidates } from '../decide/candidates.ts'
import type { ChaosEvent } from '../events.ts'
import type { Side, World } from '../fault.ts'
import type { Journal } from '../journal/journal.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import type { ArmedFault } from './armed-fault.ts'
import { Considering } from './considering.ts'
import { fire } from './fire.ts'
import type { FiredShot } from './shot.ts'

interface EngineParts {
  readonly clock: Clock
  readonly world: World
  readonly kill: KillSwitch
  readonly journal: Journal
  /** What running a call again would do: only what is known to read may be hit without leave. */
  readonly effectOf: (call: Call) => Effect
  /** Must not throw. */
  readonly emit: (event: ChaosEvent) => void
  /** Hears how many defects there have been, at each of them. */
  readonly onError: (errors: number) => void
}

/** Decides about calls and does to them what was decided; whether it may at all is the controller's business. */
export class Engine {
  /** Whether any fault is armed. A plain field: all that a call pays for while none is. */
  live = false
  /** Whether it only decides. */
  shadow = false
  /** Whether a call fails when the engine does. */
  strict = false
  /** Defects since the run began. */
  errors = 0
  readonly accounting: Accounting
  readonly #parts: EngineParts
  readonly #considering: Considering
  readonly #canaries = new Canaries()
  #candidates = new Candidates([])

  constructor(parts: EngineParts) {
    this.#parts = parts
    const { clock, world, journal } = parts
    const corruptions = new Corruptions<FiredShot>()
    this.accounting = new Accounting({ clock, journal, corruptions })
    this.#considering = new Considering(parts, { clock, world, corruptions, canaries: this.#canaries })
  }

  /** Replaces what is armed. */
  arm(faults: readonly ArmedFault[]): void {
    this.#candidates = new Candidates(faults)
    this.live = faults.length > 0
  }

  /** Begins a run: calls are counted from the first again. */
  begin(): void {
    this.errors = 0
    this.#considering.begin()
  }

  /** Takes a call on its way at one of the two places. */
  run(side: Side, next: Service, call: Call): Promise<Outcome> {
    if (this.#parts.kill.on) return next(call)
    let shots: FiredShot[] | undefined
    try {
      shots = this.#shotsAt(side, call)
    } catch (cause) {
      return this.#broke(cause, call) ?? next(call)
    }
    if (shots === undefined) return next(call)
    for (const shot of shots) this.accounting.follow(shot)
    return fire(shots, next, call, {
      journal: this.#parts.journal,
      broke: (shot, cause) => this.#broke(cause, call, shot),
    })
  }

  /**
   * Says what became of each fault of a call, by the outcome that the agent gets. To be called once per call, at its
   * very end; never throws.
   */
  account(call: Call, outcome: Outcome): readonly FaultFate[] {
    try {
      return this.accounting.account(call, outcome)
    } catch (cause) {
      void this.#broke(cause, call)
      return []
    }
  }

  #shotsAt(side: Side, call: Call): FiredShot[] | undefined {
    if (side === 'client') {
      this.#lookForCanaries(call)
      this.#hear(call)
    }
    const aimed = this.#candidates.of(call)
    if (aimed === undefined) return undefined
    // On both sides: the occurrence of a call must not depend on whether it got past the policies.
    const identity = this.#considering.identify(call)
    let shots: FiredShot[] | undefined
    try {
      for (const armed of aimed[side]) {
        const shot = this.#considering.consider(armed, call, identity, this.shadow)
        if (shot !== undefined) (shots ??= []).push(shot)
      }
    } catch (cause) {
      for (const shot of shots ?? []) {
        shot.withdraw()
        this.#parts.journal.finish(shot.entry)
      }
      throw cause
    }
    return shots
  }

  /** Takes what an agent says of an earlier call of its own; what a canary showed before outranks it. */
  #hear(call: Call): void {
    const said = reportedIn(call)
    if (said !== undefined) this.accounting.report(said.call, said.outcome, call.caller.id)
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

  /** What a defect makes of a call: undefined, to go on as if there were no fault, unless the engine is strict. */
  #broke(cause: unknown, call: Call, shot?: FiredShot): Promise<Outcome> | undefined {
    this.errors++
    const why = cause instanceof Error ? cause.message : String(cause)
    this.#parts.emit({ type: 'engine_error', why, detail: { fault: shot?.fault, errors: this.errors } })
    this.#parts.onError(this.errors)
    if (!this.strict) return undefined
    const error = gatewayError('internal', 'the chaos engine failed', { sent: call.record.sent })
    return Promise.resolve({ kind: 'failed', error })
  }
}
