import type { CallResult, Outcome, Partial } from '../mesh/call.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { type Edit, elements, locate } from '../protocol/json-span.ts'
import { edited } from '../protocol/large-message.ts'
import { PARTIAL_KEY, withMeta } from '../protocol/meta.ts'

/** A reply that says of itself what is missing of it; every other byte stays. One that is whole is the same object. */
export function withPartial({ result, partial }: Outcome & { kind: 'answered' }): CallResult {
  // What a server declares stands there already, in its own words.
  if (partial === undefined || partial.source === 'declared' || !isObject(result.value.result)) return result
  const { notice, ...flag } = partial
  const flagged = withMeta(result, 'result', PARTIAL_KEY, flag)
  return notice ? noticed(flagged, partial) : flagged
}

/** Most hosts show `_meta` to nobody: one more text block tells the model. */
function noticed(reply: CallResult, { reason }: Partial): CallResult {
  const result = reply.value.result as Readonly<Record<string, unknown>>
  if (!Array.isArray(result.content)) return reply
  const block = { type: 'text', text: `[partial result] ${reason}` }
  const content = [...(result.content as unknown[]), block]
  const append = (text: string): Edit[] => {
    const span = locate(text, ['result', 'content'])
    if (span === undefined) return []
    let end = span.start + 1
    for (const element of elements(text, span.start)) end = element.end
    const comma = end === span.start + 1 ? '' : ','
    return [{ start: end, end, with: comma + JSON.stringify(block) }]
  }
  return edited(reply, append, { ...reply.value, result: { ...result, content } })
}
