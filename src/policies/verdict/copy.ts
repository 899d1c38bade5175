import type { Partial } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
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

/** Most values that are compared; larger ones are taken to be equal, as nothing can be said of them. */
const MOST_VALUES = 100_000

/** Longest path that is told, in steps. */
const MOST_STEPS = 64

/** Where two objects are compared that stand at the same place. */
interface Place {
  readonly left: Readonly<Record<string, unknown>>
  readonly right: Readonly<Record<string, unknown>>
  readonly keys: readonly string[]
  /** The next of the keys. */
  at: number
}

/** The JSON Pointer of the first place where two JSON values differ; undefined when they are equal. However deep they are. */
export function difference(a: unknown, b: unknown): string | undefined {
  const open: Place[] = []
  const enter = (left: unknown, right: unknown): boolean => {
    if (left === right) return true
    const place = placeOf(left, right)
    if (place === undefined) return false
    open.push(place)
    return true
  }
  if (!enter(a, b)) return ''
  for (let compared = 0; compared < MOST_VALUES; compared++) {
    const place = open.at(-1)
    if (place === undefined) return undefined
    const { left, right, keys } = place
    const key = keys[place.at++]
    if (key === undefined) {
      if (keys.length !== Object.keys(right).length) return pointerTo(open.slice(0, -1))
      open.pop()
    } else if (!Object.hasOwn(right, key) || !enter(left[key], right[key])) return pointerTo(open)
  }
  return undefined
}

function placeOf(left: unknown, right: unknown): Place | undefined {
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null)
    return undefined
  if (Array.isArray(left) !== Array.isArray(right)) return undefined
  return { left: left as Place['left'], right: right as Place['right'], keys: Object.keys(left), at: 0 }
}

/** By the keys that were taken last at each place. */
function pointerTo(places: readonly Place[]): string {
  return places
    .slice(0, MOST_STEPS)
    .map(({ keys, at }) => `/${keys[at - 1]}`)
    .join('')
}

/** Whether two objects have the same names at their top. */
function haveSameKeys(a: object, b: object): boolean {
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key))
}
