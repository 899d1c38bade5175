import type { Partial } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { difference, haveSameKeys } from './equal.ts'
import type { Habit } from './habit.ts'
import { jsonEnd } from './json-end.ts'
import { isSurelyJson } from './text.ts'

/** Longest text that is compared with structured content, in characters. */
const MAX_COMPARED = 64 * 1024

/** That a JSON text was cut. */
export const cutText: Partial = {
  source: 'detected',
  reason: 'the JSON text ends in the middle',
  notice: false,
}

/**
 * Structured content should stand in a text block too, for older clients. What is wrong when the text is meant as
 * that copy (the tool's texts were copies before, or it has the same names at its top) and says something else.
 */
export function spoiltCopy(
  text: string,
  structured: unknown,
  copies: Habit | undefined,
): Partial | undefined {
  if (text.length > MAX_COMPARED) return undefined
  const value = parseJson(text)
  if (value === undefined) return isSurelyJson(text) && jsonEnd(text) === 'cut' ? cutText : undefined
  const path = difference(structured, value)
  if (path === undefined) {
    copies?.keep()
    return undefined
  }
  const sameKeys = isObject(value) && isObject(structured) && haveSameKeys(value, structured)
  const spoilt = copies === undefined ? sameKeys : copies.strong || (sameKeys && copies.possible)
  copies?.break()
  if (!spoilt) return undefined
  const reason = 'the text and the structured content differ'
  return {
    source: 'detected',
    reason,
    ...(path === '' ? {} : { missing: [path.slice(0, 200)] }),
    notice: false,
  }
}
