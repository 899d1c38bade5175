import type { Call, Fate, FaultFate, InjectedFault, Outcome, RequestId } from '../../mesh/call.ts'
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

/** A shorter hold than this, in milliseconds, is no delay that anybody feels. */
const LEAST_DELAY_MS = 1

/**
 * Follows injected faults to what the agent saw of them, and to what it did next.
 *
 * Each injection has exactly one fate, which is known when the call that it hit is over. The first of these that is true:
 *
 * - `not_reached`: it has done nothing to the call: the call had ended, or the fault.
 * - `surfaced`: the agent got an error, or a reply that says that something is missing of it.
 * - `escaped`: the agent got a good reply which shows what the fault did to it.
 * - `delayed`: the agent got a good reply, and the fault held the call for a millisecond or more before that; by so much.
 * - `masked`: the agent got a good reply.
 *
 * So of any fault injected = masked + delayed + surfaced + escaped + not_reached: see `FaultCounts`, and the metrics
 * `faults_injected_total` and `fault_outcomes_total`. A reply that was kept and reaches later calls is told of with these, and
 * counted apart. The gateway's own questions are counted in the same way, apart from agents' calls.
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
   * Says of every fault of a call what became of it, by the outcome that the agent gets. To be called once per call,
   * at its very end. A corrupted reply that was kept and served again counts for the call that got it.
   */
  account({ record }: Call, outcome: Outcome): readonly FaultFate[] {
    const { corruptions } = this.#parts
    const culprits = corruptions.any ? corruptions.of(outcome) : undefined
    if (record.faults === undefined && culprits === undefined) return NOTHING
    const isTold = isWarned(outcome)
    const own = (record.faults ?? []).flatMap((injected) => this.#injections.get(injected) ?? [])
    const fates: FaultFate[] = []
    for (const injection of own) {
      if (!injection.isOpen) continue
      const delayedMs = injection.heldMs
      const fate = fateOf(injection, isTold, culprits?.has(injection) === true)
      injection.settle(fate)
      this.#write(injection.entry, { fate })
      const { injected: fault } = injection
      fates.push(fate === 'delayed' ? { fault, fate, delayedMs } : { fault, fate })
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
   * The names of the faults without which a call would not have ended like this; while its outcome is undefined, of those that
   * hold it. A fault that only holds a call is named where the call's time was over, and it held the call for half of that time.
   */
  culprits({ record, signal }: Call, outcome: Outcome | undefined): readonly string[] {
    const own = (record.faults ?? []).flatMap((injected) => this.#injections.get(injected) ?? [])
    if (own.length === 0) return []
    const makers = outcome && this.#parts.corruptions.of(outcome)
    const isCulprit = (injection: AppliedInjection) => {
      if (outcome === undefined || signal.aborted) return injection.heldMost
      if (makers?.has(injection) === true) return true
      return isWarned(outcome) && (injection.bends || injection.madeError)
    }
    return own.filter(isCulprit).map(({ fault }) => fault)
  }

  /** A call is about to be sent: if that is not the first time, it is so because of, or in spite of, what hit it before. */
  sentAgain({ record: { faults }, attempt }: Call): void {
    for (const injected of faults ?? []) {
      if (injected.side === 'client' || injected.attempt >= attempt || injected.resent === true) continue
      const injection = this.#injections.get(injected)
      if (injection === undefined || !injection.tookEffect) continue
      injected.resent = true
      injection.counts.resent++
    }
  }

  /**
   * Takes note of what an agent did after the latest call with this id, or of this intent: of all callers unless
   * `whose` names one, or its task. Returns how many injected faults that is about; a fault whose outcome is known keeps it.
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
      // The journal keeps the beginnings of their ids only.
      return callerId?.startsWith(call.caller) !== false
    })
    const latest = entries[0]?.callKey
    return entries.filter((entry) => entry.callKey === latest && this.#note(entry, agent)).length
  }

  /** The agent believed what a fault made. False when that is known of the fault already. */
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

/** Whether the agent can tell that something went wrong. */
function isWarned(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return true
  const { wire, partial, result } = outcome
  if (wire?.end !== undefined || (wire?.status ?? 200) >= 400) return true
  return partial !== undefined || verdictOf(result.value) !== 'unchecked' || saysPartial(result.value.result)
}

/** Whether a result says itself that something is missing of it, though no policy has looked. */
const saysPartial = (result: unknown): boolean =>
  isObject(result) && isObject(result._meta) && isObject(result._meta[PARTIAL_KEY])

/** Where an agent says on a later call what it did with what it got of an earlier one: `{call, outcome}`. */
export const OUTCOME_KEY = 'dev.breakwater/outcome'

const outcomes: ReadonlySet<unknown> = new Set<AgentOutcome>(['safe', 'silent', 'unknown'])

interface Reported {
  /** Id of the earlier call as the agent sent it, or the intent that it belonged to. */
  readonly call: RequestId
  readonly outcome: AgentOutcome
}

/** Returns the outcome that a call reports of an earlier call; undefined when the report is missing or makes no sense. */
export function reportedIn({ message }: Call): Reported | undefined {
  const said = metaOf(message.value, 'params', OUTCOME_KEY)
  if (!isObject(said)) return undefined
  const { call, outcome } = said
  if ((typeof call !== 'string' && typeof call !== 'number') || !outcomes.has(outcome)) return undefined
  return { call, outcome: outcome as AgentOutcome }
}
