import type { Call, FaultFate, InjectedFault, Outcome, RequestId } from '../../mesh/call.ts'
import { verdictOf } from '../../mesh/classify.ts'
import type { Clock } from '../../mesh/clock.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { metaOf } from '../../protocol/meta.ts'
import type { FiredShot } from '../firing/shot.ts'
import type { DecisionEntry } from '../journal/entry.ts'
import type { Journal } from '../journal/journal.ts'
import type { Corruptions } from './corruptions.ts'
import type { AgentOutcome, Fate } from './tally.ts'

interface AccountingParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly corruptions: Corruptions<FiredShot>
}

const NOTHING: readonly FaultFate[] = []

/** Follows injected faults to what the agent saw of them, and to what it did next. */
export class Accounting {
  readonly #parts: AccountingParts
  readonly #shots = new WeakMap<InjectedFault | DecisionEntry, FiredShot>()

  constructor(parts: AccountingParts) {
    this.#parts = parts
  }

  follow(shot: FiredShot): void {
    this.#shots.set(shot.injected, shot)
    this.#shots.set(shot.entry, shot)
  }

  /**
   * Says of every fault of a call what became of it, by the outcome that the agent gets. To be called once per call,
   * at its very end. A corrupted reply that was kept and served again counts for the call that got it.
   */
  account({ record }: Call, outcome: Outcome): readonly FaultFate[] {
    const culprits = this.#parts.corruptions.of(outcome)
    if (record.faults === undefined && culprits === undefined) return NOTHING
    const warned = isWarned(outcome)
    const involved = new Set(culprits)
    for (const injected of record.faults ?? []) {
      const shot = injected.status === 'applied' ? this.#shots.get(injected) : undefined
      if (shot !== undefined) involved.add(shot)
    }
    return [...involved].map((shot) => {
      const fate = warned ? 'surfaced' : culprits?.has(shot) === true ? 'escaped' : 'masked'
      shot.armed.tally[fate]++
      shot.entry.fate = fate
      this.#write(shot.entry, { fate })
      return { fault: shot.injected, fate }
    })
  }

  /**
   * Takes note of what an agent did after the latest call with this id, or of this intent: of all callers unless
   * `callerId` names one. Returns how many injected faults that is about; a fault whose outcome is known keeps it.
   */
  report(callId: string | number, agent: AgentOutcome, callerId?: string): number {
    const entries = this.#parts.journal.injected(({ call }) => {
      if (call.id !== callId && call.intent !== callId) return false
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
    const shot = this.#shots.get(entry)
    if (shot === undefined || (entry.agent !== undefined && entry.agent !== 'unknown')) return false
    entry.agent = agent
    shot.armed.tally[agent]++
    this.#write(entry, { agent })
    return true
  }

  #write({ seq, fault }: DecisionEntry, said: { fate?: Fate; agent?: AgentOutcome }): void {
    const { journal, clock } = this.#parts
    journal.append({ kind: 'fate', seq: journal.nextSeq(), at: clock.wall(), of: seq, fault, ...said })
  }
}

/** Whether the agent can tell that something went wrong. */
function isWarned(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return true
  const { wire, partial, result } = outcome
  if (wire?.end !== undefined || (wire?.status ?? 200) >= 400) return true
  return partial !== undefined || verdictOf(result.value) !== 'unchecked'
}

/** Where an agent says on a later call what it did with what it got of an earlier one: `{call, outcome}`. */
export const OUTCOME_KEY = 'dev.breakwater/outcome'

const outcomes: ReadonlySet<unknown> = new Set<AgentOutcome>(['safe', 'silent', 'unknown'])

interface Reported {
  /** Id of the earlier call as the agent sent it, or the intent that it belonged to: in the modern era ids are ours. */
  readonly call: RequestId
  readonly outcome: AgentOutcome
}

/** What a call reports of an earlier one; undefined for nothing, and for what makes no sense. */
export function reportedIn({ message }: Call): Reported | undefined {
  const said = metaOf(message.value, 'params', OUTCOME_KEY)
  if (!isObject(said)) return undefined
  const { call, outcome } = said
  if ((typeof call !== 'string' && typeof call !== 'number') || !outcomes.has(outcome)) return undefined
  return { call, outcome: outcome as AgentOutcome }
}
