import type { Call, Outcome } from '../../mesh/call.ts'
import { resultText } from '../../protocol/jsonrpc.ts'

/** An answer that the operator has written. Without a text, the text is that of the structured content. */
export function prepared(
  {
    text,
    structuredContent,
  }: {
    readonly text?: string | undefined
    readonly structuredContent?: Readonly<Record<string, unknown>> | undefined
  },
  notice: boolean,
): (call: Call, failure: string) => Outcome {
  const content = [{ type: 'text', text: text ?? JSON.stringify(structuredContent) }]
  const result = structuredContent === undefined ? { content } : { content, structuredContent }
  const json = JSON.stringify(result)
  return ({ id }, failure) => ({
    kind: 'answered',
    result: { text: resultText(id, json), value: { jsonrpc: '2.0', id, result }, status: 200 },
    verdict: 'unchecked',
    partial: { source: 'fallback', reason: `a prepared answer, because ${failure}`, notice },
  })
}
