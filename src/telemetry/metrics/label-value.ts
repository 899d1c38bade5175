/** The label value of every tool, prompt or fault without separate series. */
export const OTHER = '_other'

/** Longest value of a label, in characters. */
const MAX = 120

/** The hash at the end of a shortened or changed value. */
const HASHED = /~[0-9a-f]{8}$/

/** Characters that end a label in prom-client's keys, that need an escape, or that are invisible. */
const UNFIT = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|[,"\\]/gu

/**
 * Returns a foreign name as a label value: at most 120 characters, without commas, double quotes, backslashes and
 * invisible characters. In prom-client, the key of a series joins `name:value,` pairs, so `{a: '1,b:2'}` and `{a: '1',
 * b: '2'}` would collide. A changed name ends in a hash of the original name, so that two names rarely collide. A name
 * that looks changed, or equals `_other`, gets a hash too.
 */
export function labelValue(name: string): string {
  if (name.length <= MAX && name !== OTHER && !HASHED.test(name) && name.replace(UNFIT, '_') === name)
    return name
  return `${name.slice(0, MAX - 9).replace(UNFIT, '_')}~${hash(name)}`
}

/** Returns the 32-bit FNV-1a hash of a text. The hash only tells names apart; it gives no security. */
function hash(text: string): string {
  let state = 0x811c9dc5
  for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193)
  return (state >>> 0).toString(16).padStart(8, '0')
}
