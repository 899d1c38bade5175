import type { CallResult } from '../../mesh/call.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { resultText } from '../../protocol/jsonrpc.ts'

/** A reply with another result. Of a response, all else stays as its author wrote it; an error becomes a response. */
export function withResult({ text, value, status }: CallResult, result: unknown): CallResult {
  if ('result' in value) {
    return { text: replaceAt(text, ['result'], result), value: { ...value, result }, status }
  }
  const { id } = value
  return {
    text: resultText(id as string | number, JSON.stringify(result)),
    value: { jsonrpc: '2.0', id, result },
    status,
  }
}
