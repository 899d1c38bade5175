/**
 * How far the parts of a JSON text reach: each function takes a place in the text and returns the one behind. None looks
 * at what it passes more closely than it must, so what they find means something only in a text that `JSON.parse` accepts;
 * of any other the end is the end.
 */

export const QUOTE = 0x22
export const BACKSLASH = 0x5c
export const COMMA = 0x2c
export const OPEN_OBJECT = 0x7b
export const CLOSE_OBJECT = 0x7d
export const OPEN_ARRAY = 0x5b
export const CLOSE_ARRAY = 0x5d

/** Over white space, if there is any. */
export function skipSpace(text: string, at: number): number {
  for (;;) {
    const unit = text.charCodeAt(at)
    if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) return at
    at++
  }
}

/** From behind a member or element to the next one, or to the bracket that closes them. */
export function skipComma(text: string, at: number): number {
  at = skipSpace(text, at)
  return text.charCodeAt(at) === COMMA ? skipSpace(text, at + 1) : at
}

/** Over a string; `at` stands on its opening quote. */
export function skipString(text: string, at: number): number {
  for (;;) {
    at = text.indexOf('"', at + 1)
    if (at === -1) return text.length
    let slashes = 0
    while (text.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return at + 1
  }
}

/** Over a value of any kind; `at` stands on its first character. */
export function skipValue(text: string, at: number): number {
  const opening = text.charCodeAt(at)
  if (opening === QUOTE) return skipString(text, at)
  if (opening === OPEN_OBJECT || opening === OPEN_ARRAY) return skipNested(text, at)
  while (at < text.length && !endsLiteral(text.charCodeAt(at))) at++
  return at
}

/** Whether a character is none of a number or a word: a comma, a bracket that closes, or white space. */
function endsLiteral(unit: number): boolean {
  return unit === COMMA || unit === CLOSE_OBJECT || unit === CLOSE_ARRAY || unit <= 0x20
}

function skipNested(text: string, at: number): number {
  let depth = 0
  while (at < text.length) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = skipString(text, at)
      continue
    }
    if (unit === OPEN_OBJECT || unit === OPEN_ARRAY) depth++
    else if ((unit === CLOSE_OBJECT || unit === CLOSE_ARRAY) && --depth === 0) return at + 1
    at++
  }
  return at
}

/** Whether objects and arrays stand more than `most` levels within each other. */
export function isDeeperThan(most: number, text: string): boolean {
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) at = skipString(text, at) - 1
    else if (unit === OPEN_OBJECT || unit === OPEN_ARRAY) {
      if (++depth > most) return true
    } else if (unit === CLOSE_OBJECT || unit === CLOSE_ARRAY) depth--
  }
  return false
}
