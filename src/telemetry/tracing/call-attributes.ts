import { createHash } from 'node:crypto'
import type { Attributes } from '@opentelemetry/api'
import type { Call, Caller, Outcome } from '../../mesh/call.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { locate, type Path } from '../../protocol/json-span.ts'
import { MODERN_VERSION, PROTOCOL_VERSION_KEY } from '../../protocol/modern.ts'
import type { CallTrace } from './call-trace.ts'
import type { Kept } from './keep.ts'
import { ATTRIBUTES as A, EXECUTE_TOOL } from './spans.ts'
import { clipped, LONGEST_PAYLOAD } from './text.ts'

/** What the spans of a call and of its attempts say alike. */
export function commonAttributes({ server, method, tool, id }: Call): Attributes {
  const attributes: Attributes = {
    [A.method]: clipped(method),
    [A.requestId]: clipped(String(id)),
    [A.server]: server,
  }
  if (tool === undefined) return attributes
  attributes[A.operation] = EXECUTE_TOOL
  attributes[A.tool] = clipped(tool)
  return attributes
}

/** What the span of a call says besides its result. */
export function callAttributes(call: Call, trace: CallTrace, kept: Kept): Attributes {
  const { record, inbound } = call
  const attributes = commonAttributes(call)
  attributes[A.transport] = 'tcp'
  attributes[A.kept] = kept
  attributes[A.attempts] = record.attempts
  const version = versionOf(call)
  if (version !== undefined) attributes[A.protocolVersion] = clipped(version)
  const session = inbound['mcp-session-id']
  if (version !== MODERN_VERSION && typeof session === 'string')
    attributes[A.session] = digestOf(call.caller, session)
  if (record.arm !== '') attributes[A.arm] = record.arm
  if (record.retries > 0) attributes[A.retries] = record.retries
  if (record.hedges > 0) attributes[A.hedges] = record.hedges
  if (record.recoveries > 0) attributes[A.recoveries] = record.recoveries
  const deadline = trace.attempts[0]?.call.deadline
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

function payloadIn(text: string, path: Path): string | undefined {
  const span = locate(text, path)
  return span && clipped(text.slice(span.start, span.end), LONGEST_PAYLOAD)
}

/** The protocol version that the agent speaks: by the request itself, by its header, or by the handshake. */
function versionOf({ message, inbound, caller }: Call): string | undefined {
  const meta = paramsOf(message.value)._meta
  const said = isObject(meta) ? meta[PROTOCOL_VERSION_KEY] : undefined
  const version = said ?? inbound['mcp-protocol-version'] ?? caller.hello.protocolVersion
  return typeof version === 'string' ? version : undefined
}

const digests = new WeakMap<Caller, string>()

/** Tells sessions apart, and opens none. Made once: a caller has one session. */
function digestOf(caller: Caller, session: string): string {
  const known = digests.get(caller)
  if (known !== undefined) return known
  const digest = createHash('sha256').update(session).digest('hex').slice(0, 16)
  digests.set(caller, digest)
  return digest
}
