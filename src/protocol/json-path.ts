import { isObject } from './jsonrpc.ts'
import type { JsonPath } from './json-span.ts'

/** The value at a path; undefined when there is none. */
export function at(value: unknown, path: JsonPath): unknown {
  let found: unknown = value
  for (const step of path) {
    if (Array.isArray(found) && typeof step === 'number') found = found[step]
    else if (isObject(found) && typeof step === 'string') found = found[step]
    else return undefined
  }
  return found
}
