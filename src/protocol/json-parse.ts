import { isDeeperThan, skipComma, skipSpace, skipString, skipValue } from './json-scan.ts'

/**
 * V8 from 12.8 on (Node 24) may take a key that is written with an escape for another one, if objects with that other key
 * were parsed before (https://github.com/nodejs/node/issues/63785): whoever sends `"na\u006de"` after `"na\\u"` would be
 * checked for another name than the server reads. Texts with such keys are read without V8's help where it has this defect.
 */
const isSound = (() => {
  JSON.parse('{"h":[],"\\\\":0}')
  return '"' in (JSON.parse('{"h":1,"\\"":2}') as object)
})()

/** What is nested more deeply is not worth the stack; requests that are have been refused, or are now. */
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
      // What a text calls `__proto__` is a member like any other.
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
