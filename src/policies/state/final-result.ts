import type { Call, CallResult } from '../../mesh/call.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'

/** Returns whether a reply ends its call; `input_required` asks for another request first. */
export function isFinal({ value }: CallResult): boolean {
  return !isObject(value.result) || value.result.resultType !== 'input_required'
}

/** Returns whether a call asks for a task instead of an answer; the answer arrives later, by another request. */
export function isTask({ message }: Call): boolean {
  return paramsOf(message.value).task !== undefined
}
