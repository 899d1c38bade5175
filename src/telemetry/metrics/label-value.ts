/** The label of every tool, prompt or fault without series of its own. */
export const OTHER = '_other'

/** Longest value of a label, in characters. */
const MAX = 120

/** The hash at the end of a shortened or changed value. */
const HASHED = /~[0-9a-f]{8}$/

/** Characters that prom-client takes for the end of a label, that need an escape, or that are invisible. */
const UNFIT = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|[,"\\]/gu

/**
 * Returns a foreign name as a label value: at most 120 characters, without commas, double quotes, backslashes and
 * invisible characters. prom-client keys a series by its joined `name:value,` pairs, so `{a: '1,b:2'}` and `{a: '1', b:
 * '2'}` would collide. A changed name ends in a hash of the name, so that no two names collide; so does a name that
 * looks changed or equals ours.
 */
export function labelValue(name: string): string {
  if (name.length <= MAX && name !== OTHER && !HASHED.test(name) && name.replace(UNFIT, '_') === name)
    return name
  return `${name.slice(0, MAX - 9).replace(UNFIT, '_')}~${hash(name)}`
}

/** FNV-1a, 32 bits: tells accidentally different names apart; nothing else relies on the hash. */
function hash(text: string): string {
  let state = 0x811c9dc5
  for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193)
  return (state >>> 0).toString(16).padStart(8, '0')
}
