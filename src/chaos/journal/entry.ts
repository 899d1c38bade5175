import type { RequestId } from '../../mesh/call.ts'
import type { Fate } from '../../mesh/injected.ts'
import type { AgentOutcome } from '../accounting/counts.ts'
import type { Step } from '../decide/decide.ts'
import type { Side } from '../fault.ts'

/** Why a matching call was not hit. */
export type Because =
  | 'rate'
  | 'schedule'
  /** The fault does not hit the call's task. */
  | 'task'
  /** The tool is not known to be read-only. */
  | 'write'
  /** The server's list is unknown, so no tool of the server is known to be read-only. */
  | 'list_unknown'
  | 'max_injections'
  | 'overflow'
  /** The fault cannot work with the server. */
  | 'refused'
  | 'shadow'

/** A decision about an attempt: hit or not, and all facts needed to decide again. */
export interface DecisionEntry {
  readonly kind: 'decision'
  readonly seq: number
  /** Milliseconds since the Unix epoch. */
  readonly at: number
  readonly fault: string
  readonly type: string
  readonly side: Side
  readonly callKey: string
  /** True when the decision depends on the order or the time of arrival. */
  readonly orderDependent: boolean
  readonly drawKey: string
  /** Key of the draw about the call's task, if there was such a draw. */
  readonly task?: string | undefined
  readonly u: number
  readonly rate: number
  readonly count: number
  readonly sinceMs: number
  readonly step?: Step | undefined
  readonly attempt: number
  readonly decision: 'injected' | 'not_injected'
  readonly because: Because | undefined
  /** The draw did not choose the call, but the fault hit the call because of its effect on an earlier call. */
  readonly isCaught?: true
  readonly call: {
    readonly server: string
    readonly method: string
    readonly tool: string | undefined
    readonly id: RequestId
    readonly caller: string
    readonly intent: string | undefined
  }
  /** `pending` until the attempt is over; then the effect, as the fault reports it. */
  status?: 'pending' | 'applied' | 'not_applicable' | 'not_reached' | 'error'
  note?: Readonly<Record<string, unknown>>
  /** Digests of the result before and after the fault. */
  before?: string
  after?: string
  /** Why the injection was cut short. */
  released?: string
  outcome?: string
  fate?: Fate
  agent?: AgentOutcome
}

/** Fate of an injected fault, known only after the whole call. */
export interface FateEntry {
  readonly kind: 'fate'
  readonly seq: number
  readonly at: number
  /** The `seq` of the decision. */
  readonly of: number
  readonly fault: string
  readonly fate?: Fate
  readonly agent?: AgentOutcome
}

/** An event of the engine, with its author and its reason. */
export interface ControlEntry {
  readonly kind: 'control'
  readonly seq: number
  readonly at: number
  readonly type: string
  readonly by?: string | undefined
  readonly why?: string | undefined
  readonly detail?: Readonly<Record<string, unknown>> | undefined
}

export type JournalEntry = DecisionEntry | FateEntry | ControlEntry
