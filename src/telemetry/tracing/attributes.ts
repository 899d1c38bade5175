import {
  type Attributes,
  type AttributeValue,
  type HrTime,
  type SpanStatus,
  SpanStatusCode,
} from '@opentelemetry/api'
import { type Call, type CallRecord, type Outcome, requestIdOf, type Verdict } from '../../mesh/call.ts'
import { faultFates, type InjectedFault, injectedFaults } from '../../mesh/injected.ts'
import { resultOfCall } from '../../mesh/classify.ts'
import { deciders, facts } from '../../policies/descriptions.ts'
import { baggageOf } from '../../protocol/baggage.ts'
import { locate, type JsonPath } from '../../protocol/json-span.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { clip, ownText } from '../../units/recent.ts'
import { sessionDigest } from '../intents/intent.ts'
import type { AttemptFacts } from './call-trace.ts'
import type { EndedSpan } from './ended-span.ts'
import { type KeepReason, ATTRIBUTES as A, EVENT_ATTRIBUTES as E, EVENTS } from './spans.ts'
import { codeOf, errorTypeOf, EXECUTE_TOOL, HTTP, type Peer, versionOf } from '../conventions.ts'

function commonAttributes(call: Call): Attributes {
  const { server, method, tool } = call
  const attributes: Attributes = {
    [A.method]: clipped(method),
    [A.requestId]: clipped(String(requestIdOf(call))),
    [A.server]: server,
  }
  if (tool === undefined) return attributes
  attributes[A.operation] = EXECUTE_TOOL
  attributes[A.tool] = clipped(tool)
  return attributes
}

/** Returns the attributes of a call's span, without its result. `first`: the call's first attempt. */
export function callAttributes(call: Call, first: AttemptFacts | undefined, kept: KeepReason): Attributes {
  const { record, inbound, caller } = call
  const attributes = commonAttributes(call)
  attributes[A.transport] = 'tcp'
  attributes[A.protocol] = HTTP
  attributes[A.kept] = kept
  attributes[A.attempts] = record.attempts
  const version = versionOf(call)
  if (version !== undefined) attributes[A.protocolVersion] = clipped(version)
  const session = inbound['mcp-session-id']
  if (caller.era === 'legacy' && typeof session === 'string')
    attributes[A.session] = sessionDigest(call.caller, session)
  for (const [key, value] of baggageOf(call, OF_AGENT) ?? []) attributes[key] = value
  if (record.arm !== '') attributes[A.arm] = record.arm
  for (const { fact } of facts) {
    const { attribute } = fact.telemetry
    const value = fact.of(record)
    if (attribute !== undefined && value !== fact.initial) attributes[attribute] = value as AttributeValue
  }
  if (record.recoveries > 0) attributes[A.recoveries] = record.recoveries
  const deadline = first?.call.deadline
  if (deadline !== undefined) attributes[A.deadline] = Math.round(deadline.at - record.startedAt)
  const faults = injectedFaults.of(record)?.filter(({ status }) => status === 'applied')
  if (faults !== undefined && faults.length > 0) attributes[A.faults] = faults.map(({ name }) => name)
  return attributes
}

/** Attributes that an agent may send in its baggage, under the same names. The gateway does not check the values. */
const OF_AGENT: ReadonlySet<string> = new Set([
  A.conversation,
  A.agentId,
  A.agentName,
  A.agentVersion,
  A.workflow,
])

/**
 * Adds the arguments and the result of a call. Called only if the operator has enabled payloads, because both may be
 * confidential.
 */
export function addPayloads(attributes: Attributes, call: Call, outcome: Outcome): void {
  if (call.tool === undefined) return
  // Cuts the text as received. Serializing again would take time for the whole value, and deep nesting could exhaust
  // the stack.
  const given = payloadIn(call.message.text, ['params', 'arguments'])
  if (given !== undefined) attributes[A.arguments] = given
  if (outcome.kind !== 'answered') return
  const result = payloadIn(outcome.result.text, ['result'])
  if (result !== undefined) attributes[A.result] = result
}

function payloadIn(text: string, path: JsonPath): string | undefined {
  const span = locate(text, path)
  // Copies the part, so that the whole text, which may be megabytes, does not stay in memory with the waiting span.
  return span && ownText(text.slice(span.start, Math.min(span.end, span.start + LONGEST_PAYLOAD)))
}

/** Returns the attributes of an attempt's span, without its result. */
export function attemptAttributes(facts: AttemptFacts, peer: Peer | undefined): Attributes {
  const { call, replica, startedAt } = facts
  const attributes = commonAttributes(call)
  attributes[A.attempt] = call.attempt
  if (replica !== undefined) attributes[A.replica] = replica
  if (call.deadline !== undefined) attributes[A.deadline] = Math.round(call.deadline.at - startedAt)
  if (facts.endedAt === undefined) attributes[A.abandoned] = true
  if (peer === undefined) return attributes
  attributes[A.transport] = peer.transport
  if (peer.transport === 'tcp') attributes[A.protocol] = HTTP
  if (peer.address !== undefined) attributes[A.address] = peer.address
  if (peer.port !== undefined) attributes[A.port] = peer.port
  if (peer.version !== undefined) attributes[A.protocolVersion] = peer.version
  return attributes
}

/** Returns the beginning of a server's text, without the secrets of the server's config and of the call's headers. */
export type ConcealFor = (call: Call, text: string) => string

/** Adds the outcome of a call or an attempt to the attributes. Returns the status for the span. */
export function addResult(
  attributes: Attributes,
  call: Call,
  outcome: Outcome,
  conceal: ConcealFor,
): SpanStatus {
  attributes[A.outcome] = resultOfCall(outcome, call.record)
  const errorType = errorTypeOf(outcome)
  if (errorType !== undefined) attributes[A.errorType] = errorType
  if (outcome.kind !== 'answered')
    return { code: SpanStatusCode.ERROR, message: clipped(outcome.error.message) }
  const { verdict, partial, result } = outcome
  attributes[A.verdict] = verdict
  if (partial !== undefined) attributes[A.partial] = partial.source
  if (errorType === undefined) return { code: SpanStatusCode.UNSET }
  if (verdict !== 'rpc_error')
    return { code: SpanStatusCode.ERROR, message: DESCRIPTIONS[verdict] ?? verdict }
  const { error } = result.value
  if (codeOf(error) !== undefined) attributes[A.statusCode] = errorType
  const said = isObject(error) ? error.message : undefined
  if (typeof said !== 'string') return { code: SpanStatusCode.ERROR }
  return { code: SpanStatusCode.ERROR, message: clipped(conceal(call, said)) }
}

/** Descriptions for replies that count as errors, in place of the result's own text, which may be confidential. */
const DESCRIPTIONS: Readonly<Partial<Record<Verdict, string>>> = {
  tool_error: 'the result says isError: true',
  schema_invalid: 'the result breaks the output schema of its tool',
  json_invalid: 'a text of the result claims to be JSON but is not',
  partial_silent: 'the result is partial, without saying so',
}

/** Adds the faults of a call as events to the spans of the call and its attempts. */
export class FaultEvents {
  /** Faults without an event so far. Includes faults of an earlier call if its stored result is this call's answer. */
  readonly #left: Set<InjectedFault>
  readonly #fates: ReadonlyMap<InjectedFault, string>
  readonly #own: ReadonlySet<InjectedFault>

  constructor(record: CallRecord) {
    const faults = injectedFaults.of(record) ?? []
    const fates = faultFates.of(record) ?? []
    this.#own = new Set(faults)
    this.#fates = new Map(fates.map(({ fault, fate }) => [fault, fate]))
    this.#left = new Set([...faults, ...this.#fates.keys()])
  }

  /** Adds the faults that hit the attempt with this number. */
  addToAttempt(span: EndedSpan, attempt: number, at: HrTime): void {
    for (const fault of this.#own)
      if (fault.side === 'upstream' && fault.attempt === attempt && this.#left.delete(fault))
        this.#add(span, fault, at)
  }

  /** Adds all remaining faults, which hit no attempt. Call this last. */
  addToCall(span: EndedSpan, at: HrTime): void {
    for (const fault of this.#left) this.#add(span, fault, at)
  }

  #add(span: EndedSpan, fault: InjectedFault, at: HrTime): void {
    const { name, type, side, status, attempt } = fault
    const attributes: Attributes = { [E.fault]: name, [E.faultType]: type }
    if (this.#own.has(fault)) {
      attributes[E.faultSide] = side
      attributes[E.faultStatus] = status
      attributes[E.faultAttempt] = attempt
    }
    const fate = this.#fates.get(fault)
    if (fate !== undefined) attributes[E.faultFate] = fate
    span.addEvent(EVENTS.fault, attributes, at)
  }
}

/** Adds the actions of policies on a call as events, with the names that each policy defines. */
export function addDecisions(span: EndedSpan, record: CallRecord, outcome: Outcome, at: HrTime): void {
  const add = (policy: string | undefined, decision: string, reason?: string) => {
    const attributes: Attributes = { [E.decision]: decision }
    if (policy !== undefined) attributes[E.policy] = policy
    if (reason !== undefined) attributes[E.reason] = reason
    span.addEvent(EVENTS.policy, attributes, at)
  }
  for (const { policy, fact } of facts) {
    const value = fact.of(record)
    if (value === fact.initial) continue
    const said = fact.telemetry.event?.(value)
    if (said !== undefined) add(policy, said.decision, said.reason)
  }
  for (const reason of record.supersededRejections ?? []) add(undefined, 'rejected', reason)
  for (const [policy, decisionIn] of deciders) {
    const said = decisionIn(outcome)
    if (said !== undefined) add(policy, said.decision, said.reason)
  }
  if (outcome.kind === 'rejected') add(outcome.by, 'rejected', outcome.error.reason)
}

/** Longest text of an agent or a server in an attribute, in UTF-16 code units. */
const LONGEST = 256

/** Longest recorded arguments and results, in UTF-16 code units. */
const LONGEST_PAYLOAD = 4_096

/** Returns the beginning of an untrusted text, so that spans stay small. */
export const clipped = (text: string): string => clip(text, LONGEST)
