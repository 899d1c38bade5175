import type { Call, Outcome, RequestId } from '../../mesh/call.ts'
import { type Fate, type FaultFate, type InjectedFault, injectedFaults } from '../../mesh/injected.ts'
import { verdictOf } from '../../mesh/classify.ts'
import type { Clock } from '../../mesh/clock.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { metaOf, PARTIAL_KEY } from '../../protocol/meta.ts'
import type { AppliedInjection } from '../firing/injection.ts'
import type { DecisionEntry } from '../journal/entry.ts'
import type { Journal } from '../journal/journal.ts'
import type { Corruptions } from './canaries.ts'
import type { AgentOutcome } from './counts.ts'

interface AccountingParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly corruptions: Corruptions<AppliedInjection>
}

const NOTHING: readonly FaultFate[] = []

/** Shortest hold that counts as a delay, in milliseconds. */
const LEAST_DELAY_MS = 1

/**
 * Determines the effect of each injected fault on the agent's call, and records how the agent reacted.
 *
 * Each injection has exactly one fate, known when the call is over. The first true line decides:
 *
 * - `not_reached`: no effect on the call, because the call or the fault had ended.
 * - `surfaced`: the agent got an error, or a reply that says something is missing.
 * - `escaped`: the agent got a good reply that shows the effect of the fault.
 * - `delayed`: the agent got a good reply, and the fault had held the call for a millisecond or more.
 * - `masked`: the agent got a good reply without a delay.
 *
 * For any fault: injected = masked + delayed + surfaced + escaped + not_reached: see `FaultCounts`, and the metrics
 * `faults_injected_total` and `fault_outcomes_total`. A corrupted reply served from a cache is reported with each later
 * call that gets the reply, and counted as `kept`. The gateway's own requests to servers have separate counts of the
 * same kind.
 */
export class Accounting {
  readonly #parts: AccountingParts
  readonly #injections = new WeakMap<InjectedFault | DecisionEntry, AppliedInjection>()

  constructor(parts: AccountingParts) {
    this.#parts = parts
  }

  follow(injection: AppliedInjection): void {
    this.#injections.set(injection.injected, injection)
    this.#injections.set(injection.entry, injection)
  }

  /**
   * Returns the fates of all faults of a call, given the outcome that the agent gets. Call this once per call, at its
   * end. A corrupted reply from a cache counts for the call that got the reply.
   */
  account({ record }: Call, outcome: Outcome): readonly FaultFate[] {
    const { corruptions } = this.#parts
    const culprits = corruptions.any ? corruptions.of(outcome) : undefined
    if (injectedFaults.of(record) === undefined && culprits === undefined) return NOTHING
    const isTold = isWarned(outcome)
    const own = (injectedFaults.of(record) ?? []).flatMap((injected) => this.#injections.get(injected) ?? [])
    const fates: FaultFate[] = []
    for (const injection of own) {
      if (!injection.isOpen) continue
      const delayedMs = injection.heldMs
      const fate = fateOf(injection, isTold, culprits?.has(injection) === true)
      injection.settle(fate)
      this.#write(injection.entry, { fate })
      const { injected: fault } = injection
      const values = injection.takeValues()
      fates.push({
        ...{ fault, fate },
        ...(fate === 'delayed' && { delayedMs }),
        ...(fate === 'escaped' && values !== undefined && { values }),
      })
    }
    for (const injection of culprits ?? []) {
      if (own.includes(injection)) continue
      const fate = isTold ? 'surfaced' : 'escaped'
      if (fate === 'escaped') injection.counts.kept++
      fates.push({ fault: injection.injected, fate, isKept: true })
    }
    return fates
  }

  /**
   * Returns the names of the faults that caused a call's outcome. For a call without an outcome, or an aborted call,
   * returns the faults that held the call for at least half of the time.
   */
  culprits({ record, signal }: Call, outcome: Outcome | undefined): readonly string[] {
    const own = (injectedFaults.of(record) ?? []).flatMap((injected) => this.#injections.get(injected) ?? [])
    if (own.length === 0) return []
    const makers = outcome && this.#parts.corruptions.of(outcome)
    const isCulprit = (injection: AppliedInjection) => {
      if (outcome === undefined || signal.aborted) return injection.heldMost
      if (makers?.has(injection) === true) return true
      return isWarned(outcome) && (injection.bends || injection.madeError)
    }
    return own.filter(isCulprit).map(({ fault }) => fault)
  }

  /**
   * Counts an attempt about to be sent as `resent` for each fault that took effect on an earlier attempt at the call.
   */
  sentAgain({ record, attempt }: Call): void {
    for (const injected of injectedFaults.of(record) ?? []) {
      if (injected.side === 'client' || injected.attempt >= attempt || injected.resent === true) continue
      const injection = this.#injections.get(injected)
      if (injection === undefined || !injection.tookEffect) continue
      injected.resent = true
      injection.counts.resent++
    }
  }

  /**
   * Records how an agent reacted to its latest call with this id or intent. `whose` limits the search to a caller or a
   * task. Returns the number of faults whose outcome was recorded; a known outcome is not replaced.
   */
  report(
    callId: string | number,
    agent: AgentOutcome,
    whose: { readonly callerId?: string; readonly intent?: string | undefined } = {},
  ): number {
    const { callerId, intent } = whose
    const entries = this.#parts.journal.injected(({ call }) => {
      if (call.id !== callId && call.intent !== callId) return false
      if (intent !== undefined && call.intent !== intent) return false
      // The journal keeps only the beginnings of caller ids.
      return callerId?.startsWith(call.caller) !== false
    })
    const latest = entries[0]?.callKey
    return entries.filter((entry) => entry.callKey === latest && this.#note(entry, agent)).length
  }

  /** Records that the agent used a value made by a fault. Returns false when the agent's reaction is known already. */
  silent(entry: DecisionEntry): boolean {
    return this.#note(entry, 'silent')
  }

  #note(entry: DecisionEntry, agent: AgentOutcome): boolean {
    const injection = this.#injections.get(entry)
    if (injection === undefined || (entry.agent !== undefined && entry.agent !== 'unknown')) return false
    entry.agent = agent
    injection.armed.counts[agent]++
    this.#write(entry, { agent })
    return true
  }

  #write({ seq, fault }: DecisionEntry, said: { fate?: Fate; agent?: AgentOutcome }): void {
    const { journal, clock } = this.#parts
    journal.append({ kind: 'fate', seq: journal.nextSeq(), at: clock.wall(), of: seq, fault, ...said })
  }
}

function fateOf(injection: AppliedInjection, isTold: boolean, isSeen: boolean): Fate {
  if (!injection.tookEffect) return 'not_reached'
  if (isTold) return 'surfaced'
  if (isSeen) return 'escaped'
  return injection.heldMs >= LEAST_DELAY_MS ? 'delayed' : 'masked'
}

/** Returns true when the agent can see an error, or a note that parts are missing. */
function isWarned(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return true
  const { wire, partial, result } = outcome
  if (wire?.end !== undefined || (wire?.status ?? 200) >= 400) return true
  return partial !== undefined || verdictOf(result.value) !== 'unchecked' || saysPartial(result.value.result)
}

/** Returns true when the result itself declares missing parts in its `_meta`, without a policy's check. */
const saysPartial = (result: unknown): boolean =>
  isObject(result) && isObject(result._meta) && isObject(result._meta[PARTIAL_KEY])

/** Key in `_meta` of a request under which the agent reports `{call, outcome}` about an earlier call. */
export const OUTCOME_KEY = 'dev.breakwater/outcome'

const outcomes: ReadonlySet<unknown> = new Set<AgentOutcome>(['safe', 'silent', 'unknown'])

interface Reported {
  /** Id of the earlier call as the agent sent it, or the intent of the earlier call. */
  readonly call: RequestId
  readonly outcome: AgentOutcome
}

/** Returns the report in a call about an earlier call; undefined when the report is missing or invalid. */
export function reportedIn({ message }: Call): Reported | undefined {
  const said = metaOf(message.value, 'params', OUTCOME_KEY)
  if (!isObject(said)) return undefined
  const { call, outcome } = said
  if ((typeof call !== 'string' && typeof call !== 'number') || !outcomes.has(outcome)) return undefined
  return { call, outcome: outcome as AgentOutcome }
}
