/**
 * The head of an HTTP/1.1 message (RFC 9112, sections 2.1 and 5), read strictly: every text that a reader could take in
 * two ways is refused. Both ways of requests, the client of servers and the faults on the wire use this module.
 */

/** The end of a head. */
export const END_OF_HEAD = '\r\n\r\n'

const [TAB, LF, CR, SPACE, COLON] = [0x09, 0x0a, 0x0d, 0x20, 0x3a] as const

/** The characters of a name (RFC 9110, section 5.6.2), each with its lower case; 0 for all others. */
const inNames = new Uint8Array(256)
for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") inNames[char.charCodeAt(0)] = 1
for (let upper = 0x41; upper <= 0x5a; upper++) inNames[upper] = 2

/** The characters of a value: visible ASCII, space, tab, and (2) the rest of Latin-1. */
const inValues = new Uint8Array(256)
inValues[TAB] = 1
inValues.fill(1, SPACE, 0x7f)
inValues.fill(2, 0x80)

/** Fields about the length of a body; llhttp does not take a tab behind these values for a blank. */
const framing: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding'])

/** The fields of a head: names in lower case and values in turn, in their order. */
export type Fields = readonly string[]

/**
 * Reads the field lines of a head: `text` as Latin-1, from `from`, up to and without the empty line, so that every line
 * but the last ends with CR LF. Returns undefined for a folded line, a bare CR or LF, a space before the
 * colon, an empty name, or another control character. The same for a tab behind a length or coding, and (without
 * `mayBeLatin1`) for a value outside of ASCII.
 */
export function readFields(text: string, from: number, mayBeLatin1: boolean): Fields | undefined {
  const fields: string[] = []
  const { length } = text
  const most = mayBeLatin1 ? 2 : 1
  for (let at = from; at < length;) {
    const nameAt = at
    let hasUpper = false
    for (; at < length; at++) {
      const kind = inNames[text.charCodeAt(at)]!
      if (kind === 0) break
      if (kind === 2) hasUpper = true
    }
    if (at === nameAt || text.charCodeAt(at) !== COLON) return undefined
    const name = hasUpper ? text.slice(nameAt, at).toLowerCase() : text.slice(nameAt, at)
    at++
    while (at < length && isBlank(text.charCodeAt(at))) at++
    const valueAt = at
    for (; at < length; at++) {
      const kind = inValues[text.charCodeAt(at)]!
      if (kind === 0 || kind > most) break
    }
    let end = at
    for (; end > valueAt; end--) {
      const code = text.charCodeAt(end - 1)
      if (code === TAB && framing.has(name)) return undefined
      if (!isBlank(code)) break
    }
    fields.push(name, text.slice(valueAt, end))
    if (at === length) break
    if (text.charCodeAt(at) !== CR || text.charCodeAt(at + 1) !== LF || at + 2 === length) return undefined
    at += 2
  }
  return fields
}

const isBlank = (code: number) => code === SPACE || code === TAB

/** Returns the only value of a field; undefined without the field, null for a repeated field. */
export function onlyValue(fields: Fields, name: string): string | undefined | null {
  let found: string | undefined
  for (let at = 0; at < fields.length; at += 2) {
    if (fields[at] !== name) continue
    if (found !== undefined) return null
    found = fields[at + 1]
  }
  return found
}

/**
 * Returns a `Content-Length` in bytes; undefined for anything but 1 to 15 digits: a longer number is larger than any
 * limit, and a sign, a list or a space is read differently by different programs.
 */
export const lengthIn = (value: string): number | undefined =>
  /^\d{1,15}$/.test(value) ? Number(value) : undefined
