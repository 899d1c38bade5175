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

/** The attributes of a call's span besides its result; `first`: the call's first attempt. */
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

/** Agents' attributes that their baggage may hold under the same names. Nobody has checked these hints. */
const OF_AGENT: ReadonlySet<string> = new Set([
  A.conversation,
  A.agentId,
  A.agentName,
  A.agentVersion,
  A.workflow,
])

/** Adds arguments and results. Both may hold anything, so they are recorded only at an operator's request. */
export function addPayloads(attributes: Attributes, call: Call, outcome: Outcome): void {
  if (call.tool === undefined) return
  // Uses the text as received: serializing again would take time for the part cut off, and depth could exhaust the
  // stack.
  const given = payloadIn(call.message.text, ['params', 'arguments'])
  if (given !== undefined) attributes[A.arguments] = given
  if (outcome.kind !== 'answered') return
  const result = payloadIn(outcome.result.text, ['result'])
  if (result !== undefined) attributes[A.result] = result
}

function payloadIn(text: string, path: JsonPath): string | undefined {
  const span = locate(text, path)
  // Copied: the part waits for its collector, while the whole text may be megabytes.
  return span && ownText(text.slice(span.start, Math.min(span.end, span.start + LONGEST_PAYLOAD)))
}

/** The attributes of an attempt's span besides its result. */
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

/** Returns the beginning of a text from a call's server, without the secrets of its config and of the call. */
export type ConcealFor = (call: Call, text: string) => string

/** Adds the outcome of a call or of its attempt; returns the status for the span. */
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

/** Descriptions of replies that are errors. Texts of results may hold anything. */
const DESCRIPTIONS: Readonly<Partial<Record<Verdict, string>>> = {
  tool_error: 'the result says isError: true',
  schema_invalid: 'the result breaks the output schema of its tool',
  json_invalid: 'a text of the result claims to be JSON but is not',
  partial_silent: 'the result is partial, without saying so',
}

/** The faults of a call, added as events to the spans of their targets. */
export class FaultEvents {
  /** Includes faults of earlier calls whose result was kept and is this call's answer. */
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

  /** Adds the faults that hit the try with this number. */
  addToAttempt(span: EndedSpan, attempt: number, at: HrTime): void {
    for (const fault of this.#own)
      if (fault.side === 'upstream' && fault.attempt === attempt && this.#left.delete(fault))
        this.#add(span, fault, at)
  }

  /** Adds the faults of the call as a whole: all that hit no try. Call this last. */
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

/** Adds policies' actions on a call, in the policies' own words. */
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

/** Longest recorded arguments and results. */
const LONGEST_PAYLOAD = 4_096

/** Returns the beginning of an untrusted text: a batch of spans is no place for a megabyte. */
export const clipped = (text: string): string => clip(text, LONGEST)
