import { isDeeperThan, skipComma, skipSpace, skipString, skipValue } from './json-span.ts'

/**
 * V8 from 12.8 on (Node 24) may take a key that is written with an escape for another one, if objects with that other key
 * were parsed before (https://github.com/nodejs/node/issues/63785): whoever sends `"na\u006de"` after `"na\\u"` would be
 * checked for another name than the server reads. Texts with such keys are read without V8's help where it has this defect.
 */
const isSound = (() => {
  JSON.parse('{"h":[],"\\\\":0}')
  return '"' in (JSON.parse('{"h":1,"\\"":2}') as object)
})()

/** Deeper texts are not worth the stack: requests nested so deeply are refused, before or after `parseExactly` reads them. */
const MAX_DEPTH = 1_000

/** `JSON.parse`, with the keys that stand in the text. Throws for what is no JSON. */
export function parseExactly(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return isSound || !hasEscapedKey(text) || isDeeperThan(MAX_DEPTH, text) ? value : readExactly(text)
}

/** Whether a key of an object is written with an escape. */
export function hasEscapedKey(text: string): boolean {
  if (!text.includes('\\')) return false
  for (let at = text.indexOf('"'); at !== -1;) {
    const end = skipString(text, at)
    if (text[skipSpace(text, end)] === ':' && text.slice(at, end).includes('\\')) return true
    at = text.indexOf('"', end)
  }
  return false
}

/** Reads a text that `JSON.parse` accepts; V8 reads the strings and numbers in it. */
export function readExactly(text: string): unknown {
  let at = skipSpace(text, 0)

  function next(end: number): unknown {
    const part: unknown = JSON.parse(text.slice(at, end))
    at = end
    return part
  }

  function read(): unknown {
    if (text[at] === '{') return object()
    return text[at] === '[' ? array() : next(skipValue(text, at))
  }

  function object(): object {
    const fields: Record<string, unknown> = {}
    at = skipSpace(text, at + 1)
    while (text[at] !== '}') {
      const key = next(skipString(text, at)) as string
      at = skipSpace(text, skipSpace(text, at) + 1)
      const value = read()
      // A member that a text calls `__proto__` is a member like any other.
      if (key !== '__proto__') fields[key] = value
      else Object.defineProperty(fields, key, { value, writable: true, enumerable: true, configurable: true })
      at = skipComma(text, at)
    }
    at++
    return fields
  }

  function array(): unknown[] {
    const items: unknown[] = []
    at = skipSpace(text, at + 1)
    while (text[at] !== ']') {
      items.push(read())
      at = skipComma(text, at)
    }
    at++
    return items
  }

  return read()
}

/** The cost of parsing a JSON text, found without parsing the text. */

/** Most members that the objects of a message may have, all together: each new key takes a microsecond and more to parse. */
export const MAX_MEMBERS = 50_000

/** Most values that a message may hold, all together: objects, arrays, and what stands in them. */
export const MAX_VALUES = 100_000

/** Up to this length a text cannot hold as many of either, in characters: a value takes two of them at least. */
export const SHORT_TEXT = 64 * 1024

/** How deep a long reply may be nested: what is deeper is no data, and a million levels take half a second to parse. */
const MAX_REPLY_DEPTH = 1_000

/** Why a reply of a server is not parsed: everybody would wait for it. Undefined when it may be. */
export function sizeFault(text: string): string | undefined {
  if (text.length <= SHORT_TEXT) return undefined
  const size = sizeOf(text, MAX_REPLY_DEPTH)
  if (size.depth > MAX_REPLY_DEPTH) return `the reply is nested more than ${MAX_REPLY_DEPTH} deep`
  const excess = excessOf(size)
  return excess === undefined ? undefined : `the reply has ${excess}`
}

interface JsonSize {
  /** The number of members in all objects together. */
  readonly members: number
  readonly values: number
  /** The depth of the innermost object or array. */
  readonly depth: number
}

/** Returns the part of a text that exceeds its limit, in words; undefined when no limit is exceeded. */
export function excessOf({ members, values }: JsonSize): string | undefined {
  if (members > MAX_MEMBERS) return `more than ${MAX_MEMBERS} members of objects`
  return values > MAX_VALUES ? `more than ${MAX_VALUES} values` : undefined
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a

/** So much of a string is looked at character by character: most are shorter, and for those it is faster. */
const SHORT_STRING = 32

/**
 * How many members the objects of a text have, by its colons, how many values there are, by commas and brackets that
 * open, and how deep objects and arrays are nested. The text need not be JSON: for one that is not, the numbers mean
 * nothing. Looks no further once there is too much of anything.
 */
export function sizeOf(text: string, maxDepth: number): JsonSize {
  const { length } = text
  let members = 0
  let values = 0
  let depth = 0
  let deepest = 0
  for (let at = 0; at < length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at + 1)
      if (at === -1) break
    } else if (unit === COLON) {
      if (++members > MAX_MEMBERS) break
    } else if (unit === COMMA) {
      if (++values > MAX_VALUES) break
    } else if (unit === 0x7b || unit === 0x5b) {
      if (++depth > deepest) deepest = depth
      if (depth > maxDepth || ++values > MAX_VALUES) break
    } else if (unit === 0x7d || unit === 0x5d) depth--
  }
  return { members, values, depth: deepest }
}

/** Where the quote stands that closes the string of which `at` is the first character; -1 when there is none. */
function endOfString(text: string, at: number): number {
  for (const stop = at + SHORT_STRING; at < stop; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) return at
    if (unit === BACKSLASH) at++
  }
  // Here a backslash may have led beyond `stop`, never into the middle of an escape.
  const from = at
  for (let quote = text.indexOf('"', from); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0
    while (quote - 1 - slashes >= from && text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return quote
  }
  return -1
}
