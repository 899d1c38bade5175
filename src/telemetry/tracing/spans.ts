import { isHit } from '../../mesh/classify.ts'
import { faultFates } from '../../mesh/injected.ts'
import type { CallRecord, Outcome, Verdict } from '../../mesh/call.ts'
import type { CallTrace } from './call-trace.ts'

/**
 * The names in spans, except attributes of policies, which policies define. The names of MCP, GenAI, RPC and networks
 * follow OpenTelemetry's semantic conventions with the status "development". They are written out because the packages
 * that list these names move the names.
 */
export const ATTRIBUTES = {
  method: 'mcp.method.name',
  protocolVersion: 'mcp.protocol.version',
  /** A digest: the id itself would give access to the session. */
  session: 'mcp.session.id',
  operation: 'gen_ai.operation.name',
  tool: 'gen_ai.tool.name',
  conversation: 'gen_ai.conversation.id',
  agentId: 'gen_ai.agent.id',
  agentName: 'gen_ai.agent.name',
  agentVersion: 'gen_ai.agent.version',
  workflow: 'gen_ai.workflow.name',
  arguments: 'gen_ai.tool.call.arguments',
  result: 'gen_ai.tool.call.result',
  requestId: 'jsonrpc.request.id',
  statusCode: 'rpc.response.status_code',
  errorType: 'error.type',
  transport: 'network.transport',
  protocol: 'network.protocol.name',
  address: 'server.address',
  port: 'server.port',
  server: 'breakwater.server',
  /** Why the span was sent: `sampled`, `error`, `fault` or `partial`. */
  kept: 'breakwater.kept',
  outcome: 'breakwater.result',
  verdict: 'breakwater.verdict',
  /** The party that noticed something missing. */
  partial: 'breakwater.partial',
  arm: 'breakwater.arm',
  /** Time from the span's beginning to the deadline, in milliseconds. */
  deadline: 'breakwater.deadline_ms',
  rejectedBy: 'breakwater.rejected_by',
  attempts: 'breakwater.attempts',
  recoveries: 'breakwater.recoveries',
  faults: 'breakwater.faults',
  attempt: 'breakwater.attempt',
  replica: 'breakwater.replica',
  abandoned: 'breakwater.abandoned',
} as const

export const EVENTS = {
  /** A fault aimed at the call, or a fault that made its answer. */
  fault: 'breakwater.fault',
  policy: 'breakwater.policy',
} as const

export const EVENT_ATTRIBUTES = {
  fault: 'breakwater.fault.name',
  faultType: 'breakwater.fault.type',
  faultSide: 'breakwater.fault.side',
  faultStatus: 'breakwater.fault.status',
  faultAttempt: 'breakwater.fault.attempt',
  /** `masked`, `surfaced` or `escaped`: the result for the agent. */
  faultFate: 'breakwater.fault.fate',
  /** Absent when only the decision is known. */
  policy: 'breakwater.policy.name',
  decision: 'breakwater.policy.decision',
  reason: 'breakwater.policy.reason',
} as const

/** Why the spans of a call are sent: only `sampled` spans say how frequent something is. */
export type KeepReason = 'sampled' | 'error' | 'fault' | 'partial'

/** Drift is reported, but is no error. */
const fine: ReadonlySet<Verdict> = new Set(['unchecked', 'correct', 'drift'])
const partial: ReadonlySet<Verdict> = new Set(['partial_declared', 'partial_silent'])

/** Decides at the end of a call, once, whether its spans are sent; undefined when not. */
export function whyKept(trace: CallTrace, record: CallRecord, outcome: Outcome): KeepReason | undefined {
  if (trace.sampled) return 'sampled'
  if (outcome.kind !== 'answered') return 'error'
  if (faultFates.of(record) !== undefined || isHit(record)) return 'fault'
  if (outcome.partial !== undefined || partial.has(outcome.verdict)) return 'partial'
  if (!fine.has(outcome.verdict)) return 'error'
  return trace.attempts.some((attempt) => wentWrong(attempt.outcome)) ? 'error' : undefined
}

/** Whether an attempt itself failed; an attempt cancelled for a faster attempt did not. */
function wentWrong(outcome: Outcome | undefined): boolean {
  if (outcome === undefined) return false
  if (outcome.kind === 'answered') return !fine.has(outcome.verdict)
  return outcome.error.reason !== 'cancelled'
}
