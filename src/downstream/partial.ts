import type { CallResult, Outcome, Partial } from '../mesh/call.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { elements, locate } from '../protocol/json-span.ts'
import { PARTIAL_KEY, withMeta } from '../protocol/meta.ts'

/** A reply that says of itself what is missing of it; every other byte stays. One that is whole is the same object. */
export function withPartial({ result, partial }: Outcome & { kind: 'answered' }): CallResult {
  // What a server declares stands there already, in its own words.
  if (partial === undefined || partial.source === 'declared' || !isObject(result.value.result)) return result
  const { notice, ...flag } = partial
  const flagged = { ...withMeta(result, 'result', PARTIAL_KEY, flag), status: result.status }
  return notice ? noticed(flagged, partial) : flagged
}

/** Most hosts show `_meta` to nobody: one more text block tells the model. */
function noticed(reply: CallResult, { reason }: Partial): CallResult {
  const { text, value, status } = reply
  const result = value.result as Readonly<Record<string, unknown>>
  const span = Array.isArray(result.content) ? locate(text, ['result', 'content']) : undefined
  if (span === undefined) return reply
  const block = { type: 'text', text: `[partial result] ${reason}` }
  let end = span.start + 1
  for (const element of elements(text, span.start)) end = element.end
  const comma = end === span.start + 1 ? '' : ','
  const content = [...(result.content as unknown[]), block]
  return {
    text: text.slice(0, end) + comma + JSON.stringify(block) + text.slice(end),
    value: { ...value, result: { ...result, content } },
    status,
  }
}
