/** The label of every tool, prompt or fault that has no series of its own. */
export const OTHER = '_other'

/** Longest value of a label, in characters. */
const MAX = 120

/** The end of a value that had to be changed. */
const HASHED = /~[0-9a-f]{8}$/

/** Characters that prom-client takes for the end of a label, that need an escape, or that are invisible. */
const UNFIT = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|[,"\\]/gu

/**
 * A name that others chose, as the value of a label: at most 120 characters, none of them a comma, a double quote, a
 * backslash or invisible. prom-client keys a series by `name:value,` strung together, so that `{a: '1,b:2'}` and
 * `{a: '1', b: '2'}` are one to it. A name that had to be changed ends in a hash of it, so that no two become one;
 * so does one that looks as if it were changed, or that is ours.
 */
export function labelValue(name: string): string {
  if (name.length <= MAX && name !== OTHER && !HASHED.test(name) && name.replace(UNFIT, '_') === name)
    return name
  return `${name.slice(0, MAX - 9).replace(UNFIT, '_')}~${hash(name)}`
}

/** FNV-1a, 32 bits: tells names apart that differ by chance; nothing else rests on it. */
function hash(text: string): string {
  let state = 0x811c9dc5
  for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193)
  return (state >>> 0).toString(16).padStart(8, '0')
}
