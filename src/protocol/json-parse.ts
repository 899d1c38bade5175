import { isDeeperThan, skipComma, skipSpace, skipString, skipValue } from './json-span.ts'

/**
 * V8 from 12.8 on (Node 24) may confuse a key written with an escape with another key parsed before
 * (https://github.com/nodejs/node/issues/63785). After `"na\\u"`, the gateway would check `"na\u006de"` under another
 * name than the server reads. `isSound` is false where V8 has this bug; then `readExactly` parses texts with escaped
 * keys.
 */
const isSound = (() => {
  JSON.parse('{"h":[],"\\\\":0}')
  return '"' in (JSON.parse('{"h":1,"\\"":2}') as object)
})()

/** Deepest text for `readExactly`, which is recursive; the gateway refuses requests of this depth anyway. */
const MAX_DEPTH = 1_000

/**
 * Works like `JSON.parse`, but is not affected by the bug of V8: all keys are as written in the text. Throws for a text
 * that is not JSON.
 */
export function parseExactly(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return isSound || !hasEscapedKey(text) || isDeeperThan(MAX_DEPTH, text) ? value : readExactly(text)
}

/** Whether any key of an object is written with an escape. */
export function hasEscapedKey(text: string): boolean {
  if (!text.includes('\\')) return false
  for (let at = text.indexOf('"'); at !== -1;) {
    const end = skipString(text, at)
    if (text[skipSpace(text, end)] === ':' && text.slice(at, end).includes('\\')) return true
    at = text.indexOf('"', end)
  }
  return false
}

/** Parses a text that `JSON.parse` accepts. Calls `JSON.parse` only for single strings, numbers and words. */
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
      // A member named `__proto__` is a member like any other.
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

/** Most members in all objects of a message: each new key takes a microsecond and more to parse. */
export const MAX_MEMBERS = 50_000

/** Most values in a message: objects, arrays, and their contents. */
export const MAX_VALUES = 100_000

/** No text up to this length, in characters, reaches either limit: a value takes at least two characters. */
export const SHORT_TEXT = 64 * 1024

/** Deepest nesting of a long reply: real data is never deeper, and a million levels take half a second to parse. */
const MAX_REPLY_DEPTH = 1_000

/**
 * Returns why a server's reply is too large or too deep to parse without blocking the event loop; undefined if it is
 * not.
 */
export function sizeFault(text: string): string | undefined {
  if (text.length <= SHORT_TEXT) return undefined
  const size = sizeOf(text, MAX_REPLY_DEPTH)
  if (size.depth > MAX_REPLY_DEPTH) return `the reply is nested more than ${MAX_REPLY_DEPTH} deep`
  const excess = excessOf(size)
  return excess === undefined ? undefined : `the reply has ${excess}`
}

interface JsonSize {
  /** Number of members in all objects together. */
  readonly members: number
  readonly values: number
  /** Depth of the innermost object or array. */
  readonly depth: number
}

/** Returns, in words, the count that exceeds its limit; undefined when no limit is exceeded. */
export function excessOf({ members, values }: JsonSize): string | undefined {
  if (members > MAX_MEMBERS) return `more than ${MAX_MEMBERS} members of objects`
  return values > MAX_VALUES ? `more than ${MAX_VALUES} values` : undefined
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a

/** Characters of a string read one by one before `indexOf`: for most strings, which are shorter, this is faster. */
const SHORT_STRING = 32

/**
 * Counts members by colons and values by commas and opening brackets, and measures nesting. For a text that is not JSON
 * the numbers mean nothing. Stops once a count exceeds its limit.
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

/** Returns the position of the closing quote of a string whose first character is at `at`; -1 without a quote. */
function endOfString(text: string, at: number): number {
  for (const stop = at + SHORT_STRING; at < stop; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) return at
    if (unit === BACKSLASH) at++
  }
  // Skipping an escape may have moved `at` beyond `stop`, but never into the middle of an escape.
  const from = at
  for (let quote = text.indexOf('"', from); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0
    while (quote - 1 - slashes >= from && text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return quote
  }
  return -1
}
