import type { Call, Layer } from '../../../mesh/call.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { resultIn, type Shot } from '../../fault.ts'

export type ToolResult = Readonly<Record<string, unknown>>

/** Another result, and what was done to get it; or why there is none. */
export type Change =
  { readonly result: ToolResult; readonly note: Readonly<Record<string, unknown>> } | string

/**
 * A layer that lets the call run and changes its result. Replies that are no final result of a tool (errors of the
 * protocol, questions, handles of tasks) pass unharmed.
 */
export function changing(shot: Shot, make: (result: ToolResult, call: Call) => Change): Layer {
  return (next) => (call) =>
    next(call).then((outcome) => {
      const result = resultIn(outcome)
      const change =
        result !== undefined && isFinal(result) ? make(result, call) : 'the reply is not the result of a tool'
      if (typeof change === 'string') {
        shot.notApplicable(change)
        return outcome
      }
      shot.note(change.note)
      return shot.change(outcome, change.result)
    })
}

/** A result of one text, with what else it said about itself. */
export function textResult(
  { structuredContent: _, isError: __, ...rest }: ToolResult,
  text: string,
): ToolResult {
  return { ...rest, content: [{ type: 'text', text }] }
}

/** The content blocks of a result. */
export const blocksOf = ({ content }: ToolResult): readonly unknown[] =>
  Array.isArray(content) ? content : []

/** The text of a content block; undefined for all other blocks. */
export const textOf = (block: unknown): string | undefined =>
  isObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : undefined

function isFinal({ resultType, content, structuredContent }: ToolResult): boolean {
  if (resultType !== undefined && resultType !== 'complete') return false
  return content !== undefined || structuredContent !== undefined
}
