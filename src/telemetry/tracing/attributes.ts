import {
  type Attributes,
  type AttributeValue,
  type HrTime,
  type SpanStatus,
  SpanStatusCode,
} from '@opentelemetry/api'
import { type Call, type CallRecord, type InjectedFault, type Outcome, requestIdOf } from '../../mesh/call.ts'
import { resultOfCall } from '../../mesh/classify.ts'
import { deciders, facts } from '../../policies/descriptions.ts'
import { locate, type JsonPath } from '../../protocol/json-span.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { clip, ownText } from '../../units/clip.ts'
import { MODERN_VERSION, PROTOCOL_VERSION_KEY } from '../../protocol/modern.ts'
import { sessionDigest } from '../session-digest.ts'
import type { AttemptFacts } from './call-trace.ts'
import type { EndedSpan } from './ended-span.ts'
import type { KeepReason } from './keep.ts'
import { ATTRIBUTES as A, EVENT_ATTRIBUTES as E, EVENTS, EXECUTE_TOOL, TOOL_ERROR } from './spans.ts'

/** What the spans of a call and of its attempts say alike. */
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

/** What the span of a call says besides its result; `first`: its first attempt. */
export function callAttributes(call: Call, first: AttemptFacts | undefined, kept: KeepReason): Attributes {
  const { record, inbound } = call
  const attributes = commonAttributes(call)
  attributes[A.transport] = 'tcp'
  attributes[A.kept] = kept
  attributes[A.attempts] = record.attempts
  const version = versionOf(call)
  if (version !== undefined) attributes[A.protocolVersion] = clipped(version)
  const session = inbound['mcp-session-id']
  if (version !== MODERN_VERSION && typeof session === 'string')
    attributes[A.session] = sessionDigest(call.caller, session)
  if (record.arm !== '') attributes[A.arm] = record.arm
  for (const { fact } of facts) {
    const { attribute } = fact.telemetry
    const value = fact.of(record)
    if (attribute !== undefined && value !== fact.initial) attributes[attribute] = value as AttributeValue
  }
  if (record.recoveries > 0) attributes[A.recoveries] = record.recoveries
  const deadline = first?.call.deadline
  if (deadline !== undefined) attributes[A.deadline] = Math.round(deadline.at - record.startedAt)
  const faults = record.faults?.filter(({ status }) => status === 'applied')
  if (faults !== undefined && faults.length > 0) attributes[A.faults] = faults.map(({ name }) => name)
  return attributes
}

/** Arguments and results may hold anything, so they are recorded only where an operator asked for them. */
export function addPayloads(attributes: Attributes, call: Call, outcome: Outcome): void {
  if (call.tool === undefined) return
  // Their text as it came: to write them anew would take time for what is cut off, and depth could exhaust the stack.
  const given = payloadIn(call.message.text, ['params', 'arguments'])
  if (given !== undefined) attributes[A.arguments] = given
  if (outcome.kind !== 'answered') return
  const result = payloadIn(outcome.result.text, ['result'])
  if (result !== undefined) attributes[A.result] = result
}

function payloadIn(text: string, path: JsonPath): string | undefined {
  const span = locate(text, path)
  // A part of what may be megabytes, which waits for its collector.
  return span && ownText(text.slice(span.start, Math.min(span.end, span.start + LONGEST_PAYLOAD)))
}

/** The protocol version that the agent speaks: by the request itself, by its header, or by the handshake. */
function versionOf({ message, inbound, caller }: Call): string | undefined {
  const meta = paramsOf(message.value)._meta
  const said = isObject(meta) ? meta[PROTOCOL_VERSION_KEY] : undefined
  const version = said ?? inbound['mcp-protocol-version'] ?? caller.initializeParams.protocolVersion
  return typeof version === 'string' ? version : undefined
}

/** How a replica of a server is reached. */
export interface Peer {
  /** `pipe` for a process of the gateway's own. */
  readonly transport: 'tcp' | 'pipe'
  readonly address?: string | undefined
  readonly port?: number | undefined
  /** The protocol version that it is spoken to in. */
  readonly version?: string | undefined
}

/** What the span of an attempt says besides its result. */
export function attemptAttributes(facts: AttemptFacts, peer: Peer | undefined): Attributes {
  const { call, replica, startedAt } = facts
  const attributes = commonAttributes(call)
  attributes[A.attempt] = call.attempt
  if (replica !== undefined) attributes[A.replica] = replica
  if (call.deadline !== undefined) attributes[A.deadline] = Math.round(call.deadline.at - startedAt)
  if (facts.endedAt === undefined) attributes[A.abandoned] = true
  if (peer === undefined) return attributes
  attributes[A.transport] = peer.transport
  if (peer.address !== undefined) attributes[A.address] = peer.address
  if (peer.port !== undefined) attributes[A.port] = peer.port
  if (peer.version !== undefined) attributes[A.protocolVersion] = peer.version
  return attributes
}

/** Adds what became of a call or of an attempt of it; returns the status that this gives its span. */
export function addResult(attributes: Attributes, { record }: Call, outcome: Outcome): SpanStatus {
  attributes[A.outcome] = resultOfCall(outcome, record)
  if (outcome.kind !== 'answered') {
    const { reason, message } = outcome.error
    attributes[A.errorType] = reason
    return { code: SpanStatusCode.ERROR, message: clipped(message) }
  }
  const { verdict, partial, result } = outcome
  attributes[A.verdict] = verdict
  if (partial !== undefined) attributes[A.partial] = partial.source
  if (verdict === 'rpc_error') {
    const code = codeOf(result.value.error)
    attributes[A.errorType] = code ?? verdict
    if (code !== undefined) attributes[A.statusCode] = code
    return { code: SpanStatusCode.ERROR }
  }
  const errorType = verdict === 'tool_error' ? TOOL_ERROR : wrong(verdict)
  if (errorType === undefined) return { code: SpanStatusCode.UNSET }
  attributes[A.errorType] = errorType
  return { code: SpanStatusCode.ERROR }
}

/** A reply that came, and that nobody can use. */
function wrong(verdict: string): string | undefined {
  return verdict === 'schema_invalid' || verdict === 'json_invalid' || verdict === 'partial_silent'
    ? verdict
    : undefined
}

function codeOf(error: unknown): string | undefined {
  return isObject(error) && typeof error.code === 'number' ? String(error.code) : undefined
}

/** The faults of a call, dealt out as events to the spans of what they hit. */
export class FaultEvents {
  /** With those that hit earlier calls: what they made was kept, and is this call's answer. */
  readonly #left: Set<InjectedFault>
  readonly #fates: ReadonlyMap<InjectedFault, string>
  readonly #own: ReadonlySet<InjectedFault>

  constructor({ faults = [], fates = [] }: Pick<CallRecord, 'faults' | 'fates'>) {
    this.#own = new Set(faults)
    this.#fates = new Map(fates.map(({ fault, fate }) => [fault, fate]))
    this.#left = new Set([...faults, ...this.#fates.keys()])
  }

  /** Adds those that hit the try of that number. */
  addToAttempt(span: EndedSpan, attempt: number, at: HrTime): void {
    for (const fault of this.#own)
      if (fault.side === 'upstream' && fault.attempt === attempt && this.#left.delete(fault))
        this.#add(span, fault, at)
  }

  /** Adds what belongs to the call as a whole, which is all that hit no try of it; to be called last. */
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

/** Adds what policies did to a call, in words of their own. */
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

/** Longest text of an agent or a server that an attribute holds, in UTF-16 code units. */
const LONGEST = 256

/** Longest arguments and results, where they are recorded at all. */
const LONGEST_PAYLOAD = 4_096

/** The beginning of a text that anybody may have chosen: a batch of spans is no place for a megabyte. */
export const clipped = (text: string): string => clip(text, LONGEST)
