import { parseExactly } from '../../protocol/json-parse.ts'
import type { Message, Outcome } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { elements, locate, splice } from '../../protocol/json-span.ts'
import { isWider, legacyTool } from '../../protocol/output-schema.ts'

type Answered = Extract<Outcome, { kind: 'answered' }>

/** A list of tools without output schemas that the legacy era does not know; the same bytes when there are none. */
export function withLegacySchemas(outcome: Answered): Outcome {
  const { text, value } = outcome.result
  const { tools } = isObject(value.result) ? value.result : {}
  const list = locate(text, ['result', 'tools'])
  const known = Array.isArray(tools) && !tools.some((tool) => isObject(tool) && isWider(tool.outputSchema))
  if (list === undefined || text[list.start] !== '[' || known) return outcome
  const edits = [...elements(text, list.start)].map(({ start, end }, index) => {
    const tool: unknown = (tools as unknown[])[index]
    const entry = text.slice(start, end)
    return { start, end, with: isObject(tool) ? legacyTool(entry, tool) : entry }
  })
  return rewritten(outcome, splice(text, edits))
}

/**
 * A tool's result whose structured content is an object, as the legacy era wants it. `wraps`: what its schema
 * says; undefined when there is none.
 */
export function withLegacyContent(outcome: Answered, wraps: boolean | undefined): Outcome {
  const { text, value } = outcome.result
  const { structuredContent } = isObject(value.result) ? value.result : {}
  if (structuredContent === undefined || !(wraps ?? !isObject(structuredContent))) return outcome
  const span = locate(text, ['result', 'structuredContent'])
  if (span === undefined) return outcome
  const wrapped = `{"result":${text.slice(span.start, span.end)}}`
  return rewritten(outcome, text.slice(0, span.start) + wrapped + text.slice(span.end))
}

/** What the legacy era calls a resource that is not there; the modern one calls it invalid params. */
const RESOURCE_NOT_FOUND = -32002
const INVALID_PARAMS = -32602

/** The error for a resource that is not there, under its legacy code; every other outcome as it is. */
export function withLegacyError(outcome: Answered): Outcome {
  const { text, value } = outcome.result
  const { code, data } = isObject(value.error) ? value.error : {}
  const span = locate(text, ['error', 'code'])
  if (code !== INVALID_PARAMS || !isObject(data) || !('uri' in data) || span === undefined) return outcome
  return rewritten(outcome, splice(text, [{ ...span, with: String(RESOURCE_NOT_FOUND) }]))
}

function rewritten(outcome: Answered, text: string): Outcome {
  return { ...outcome, result: { ...outcome.result, text, value: parseExactly(text) as Message['value'] } }
}
