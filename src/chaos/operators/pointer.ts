import { z } from 'zod'

/** The segment for every element of an array. */
export const EVERY = '*'

/** The place of an operator: a JSON Pointer (RFC 6901) into the value, whose `*` segments mean every array element. */
export const pointer = () =>
  z
    .string()
    .regex(/^(\*?(\/([^~]|~[01])*)*)$/, 'expected a JSON Pointer, such as /items/*/name')
    .optional()
    .describe('The place, as a JSON Pointer; `*` is every array element. Default: drawn from fitting places.')

/** Returns the segments of a pointer, none for the whole value. A leading `*` needs no slash. */
export function segmentsOf(path: string): string[] {
  if (path === '') return []
  const [first = '', ...more] = path.split('/').map(unescape)
  return first === '' ? more : [first, ...more]
}

/** Returns the pointer with another segment. */
export function below(path: string, segment: string): string {
  return `${path}/${segment.replaceAll('~', '~0').replaceAll('/', '~1')}`
}

const unescape = (segment: string): string => segment.replaceAll('~1', '/').replaceAll('~0', '~')
