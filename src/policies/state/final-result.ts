import type { Call, CallResult } from '../../mesh/call.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'

/** Whether a reply is the last word on its call; `input_required` asks for another request first. */
export function isFinal({ value }: CallResult): boolean {
  return !isObject(value.result) || value.result.resultType !== 'input_required'
}

/** Whether a call asks for a task in place of an answer, which comes later and by another request. */
export function isTask({ message }: Call): boolean {
  return paramsOf(message.value).task !== undefined
}
