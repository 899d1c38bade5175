import { z } from 'zod'

/** The segment that stands for every element of an array. */
export const EVERY = '*'

/** Where an operator works: a JSON Pointer (RFC 6901) into the value, whose `*` segments mean every array element. */
export const pointer = () =>
  z
    .string()
    .regex(/^(\*?(\/([^~]|~[01])*)*)$/, 'expected a JSON Pointer, such as /items/*/name')
    .optional()
    .describe('Where, as a JSON Pointer; `*` is every array element. Without it: drawn from where it fits.')

/** The segments of a pointer; that of the whole value has none. A leading `*` needs no slash. */
export function segmentsOf(path: string): string[] {
  if (path === '') return []
  const [first = '', ...more] = path.split('/').map(unescape)
  return first === '' ? more : [first, ...more]
}

/** The pointer with one more segment. */
export function below(path: string, segment: string): string {
  return `${path}/${segment.replaceAll('~', '~0').replaceAll('/', '~1')}`
}

const unescape = (segment: string): string => segment.replaceAll('~1', '/').replaceAll('~0', '~')
