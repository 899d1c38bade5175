import type { Call, RequestId } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { metaOf } from '../../protocol/meta.ts'
import type { AgentOutcome } from './tally.ts'

/** Where an agent says on a later call what it did with what it got of an earlier one: `{call, outcome}`. */
export const OUTCOME_KEY = 'dev.breakwater/outcome'

const outcomes: ReadonlySet<unknown> = new Set<AgentOutcome>(['safe', 'silent', 'unknown'])

export interface Reported {
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
