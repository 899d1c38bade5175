import type { Fate, RequestId } from '../../mesh/call.ts'
import type { AgentOutcome } from '../accounting/counts.ts'
import type { Step } from '../decide/decide.ts'
import type { Side } from '../fault.ts'

/** Why a call that a fault matches was not hit. */
export type Because =
  | 'rate'
  | 'schedule'
  /** Its task is not among those that are hit. */
  | 'task'
  /** The tool is not known to be read-only. */
  | 'write'
  /** Neither is any other tool of its server, whose list is not known. */
  | 'list_unknown'
  | 'max_injections'
  | 'overflow'
  /** The fault cannot work with the server. */
  | 'refused'
  | 'shadow'

/** One decision about one attempt: hit or not, and all that it takes to decide it again. */
export interface DecisionEntry {
  readonly kind: 'decision'
  readonly seq: number
  /** Milliseconds since the Unix epoch. */
  readonly at: number
  readonly fault: string
  readonly type: string
  readonly side: Side
  /** Key of the logical call. */
  readonly callKey: string
  /** Whether the order or the time of arrival had a say. */
  readonly orderDependent: boolean
  /** Key of the draw. */
  readonly drawKey: string
  /** Key of the draw about the call's task, where there was such a draw. */
  readonly task?: string | undefined
  readonly u: number
  readonly rate: number
  readonly count: number
  readonly sinceMs: number
  readonly step?: Step | undefined
  readonly attempt: number
  readonly decision: 'injected' | 'not_injected'
  readonly because: Because | undefined
  /** It was not drawn, and is hit for what the fault did to an earlier call. */
  readonly isCaught?: true
  readonly call: {
    readonly server: string
    readonly method: string
    readonly tool: string | undefined
    readonly id: RequestId
    readonly caller: string
    readonly intent: string | undefined
  }
  /** `pending` until the attempt is over; then what the fault says that it did. */
  status?: 'pending' | 'applied' | 'not_applicable' | 'not_reached' | 'error'
  note?: Readonly<Record<string, unknown>>
  /** Digests of the result that it found and of the one that it left. */
  before?: string
  after?: string
  /** Why it was cut short. */
  released?: string
  /** Outcome of the attempt. */
  outcome?: string
  fate?: Fate
  agent?: AgentOutcome
}

/** Fate of an injected fault, known only when the whole call was over. */
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
