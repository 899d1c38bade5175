import { isHit } from '../../mesh/classify.ts'
import { faultFates } from '../../mesh/injected.ts'
import type { CallRecord, Outcome, Verdict } from '../../mesh/call.ts'
import type { CallTrace } from './call-trace.ts'

/**
 * The attribute names of spans, except names that policies define. The names of MCP, GenAI, RPC and networks follow
 * OpenTelemetry's semantic conventions with the status "development". The names are written here, because the packages
 * that list these names change often.
 */
export const ATTRIBUTES = {
  method: 'mcp.method.name',
  protocolVersion: 'mcp.protocol.version',
  /** A digest of the session's id: the id itself would give access to the session. */
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
  /** The reason for sending the span: `sampled`, `error`, `fault` or `partial`. */
  kept: 'breakwater.kept',
  outcome: 'breakwater.result',
  verdict: 'breakwater.verdict',
  /** The party that noticed that a part of the result is missing. */
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
  /** The name of the event of a fault that was aimed at the call, or that changed its answer. */
  fault: 'breakwater.fault',
  policy: 'breakwater.policy',
} as const

export const EVENT_ATTRIBUTES = {
  fault: 'breakwater.fault.name',
  faultType: 'breakwater.fault.type',
  faultSide: 'breakwater.fault.side',
  faultStatus: 'breakwater.fault.status',
  faultAttempt: 'breakwater.fault.attempt',
  /** The fate of the fault, such as `masked`, `surfaced` or `escaped`. */
  faultFate: 'breakwater.fault.fate',
  /** The name of the policy; absent when it is not known. */
  policy: 'breakwater.policy.name',
  decision: 'breakwater.policy.decision',
  reason: 'breakwater.policy.reason',
} as const

/** The reason for sending the spans of a call. Use only `sampled` spans to compute frequencies. */
export type KeepReason = 'sampled' | 'error' | 'fault' | 'partial'

/** The verdicts that do not count as an error; `drift` is reported in other ways. */
const fine: ReadonlySet<Verdict> = new Set(['unchecked', 'correct', 'drift'])
const partial: ReadonlySet<Verdict> = new Set(['partial_declared', 'partial_silent'])

/**
 * Returns the reason for sending the spans of a call; undefined when they are not sent. Called once at the end of the
 * call.
 */
export function whyKept(trace: CallTrace, record: CallRecord, outcome: Outcome): KeepReason | undefined {
  if (trace.sampled) return 'sampled'
  if (outcome.kind !== 'answered') return 'error'
  if (faultFates.of(record) !== undefined || isHit(record)) return 'fault'
  if (outcome.partial !== undefined || partial.has(outcome.verdict)) return 'partial'
  if (!fine.has(outcome.verdict)) return 'error'
  return trace.attempts.some((attempt) => wentWrong(attempt.outcome)) ? 'error' : undefined
}

/** True when an attempt itself failed; false for an attempt that was cancelled because another was faster. */
function wentWrong(outcome: Outcome | undefined): boolean {
  if (outcome === undefined) return false
  if (outcome.kind === 'answered') return !fine.has(outcome.verdict)
  return outcome.error.reason !== 'cancelled'
}
