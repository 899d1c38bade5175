import { skipComma, skipSpace, skipString, skipValue } from './json-scan.ts'

/**
 * Finds and replaces values inside a JSON text without re-serialising it, so that everything else
 * (unknown fields, number precision, key order, white space) stays as its author wrote it.
 * All functions expect a text that `JSON.parse` accepts.
 */

/** Where a value stands in a text: from `start` up to, not including, `end`. */
export interface Span {
  readonly start: number
  readonly end: number
}

export type JsonPath = readonly (string | number)[]

/** The span of the value at `path`. Of duplicate keys the last counts, as for `JSON.parse`. */
export function locate(text: string, path: JsonPath): Span | undefined {
  let at = skipSpace(text, 0)
  let found: Span | undefined
  for (const step of path) {
    const opening = text[at]
    found = undefined
    if (typeof step === 'string' && opening === '{') found = findMember(text, at, step)
    else if (typeof step === 'number' && opening === '[') {
      let index = 0
      for (const element of elements(text, at)) if (index++ === step) found = element
    }
    if (found === undefined) return undefined
    at = found.start
  }
  return found ?? { start: at, end: skipValue(text, at) }
}

/** The last member of that name; without the objects and slices that walking over `members` makes of each. */
function findMember(text: string, at: number, name: string): Span | undefined {
  let found: Span | undefined
  at = skipSpace(text, at + 1)
  while (text[at] !== '}') {
    const keyEnd = skipString(text, at)
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1)
    const end = skipValue(text, start)
    if (isKey(text, at, keyEnd, name)) found = { start, end }
    at = skipComma(text, end)
  }
  return found
}

/** Whether the string from `start` to `end`, quotes included, says `name`, perhaps with escapes. */
function isKey(text: string, start: number, end: number, name: string): boolean {
  if (end - start === name.length + 2 && text.startsWith(name, start + 1)) return true
  for (let at = start + 1; at < end - 1; at++)
    if (text[at] === '\\') return JSON.parse(text.slice(start, end)) === name
  return false
}

/** The members of the object that opens at `at`. */
export function* members(
  text: string,
  at: number,
): Generator<Span & { readonly key: string; readonly keyStart: number }> {
  at = skipSpace(text, at + 1)
  while (text[at] !== '}') {
    const keyStart = at
    const keyEnd = skipString(text, at)
    const quoted = text.slice(keyStart, keyEnd)
    const key = quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1)
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1)
    const end = skipValue(text, start)
    yield { key, keyStart, start, end }
    at = skipComma(text, end)
  }
}

/** The elements of the array that opens at `at`. */
export function* elements(text: string, at: number): Generator<Span> {
  at = skipSpace(text, at + 1)
  while (text[at] !== ']') {
    const end = skipValue(text, at)
    yield { start: at, end }
    at = skipComma(text, end)
  }
}

/** A replacement of one span by a text. */
export interface Edit extends Span {
  readonly with: string
}

/** Applies edits that do not overlap, in any order. */
export function splice(text: string, edits: readonly Edit[]): string {
  if (edits.length === 0) return text
  let result = ''
  let at = 0
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    result += text.slice(at, edit.start) + edit.with
    at = edit.end
  }
  return result + text.slice(at)
}

/** The text with the value at `path` replaced; unchanged when there is no such value. */
export function replaceAt(text: string, path: JsonPath, value: unknown): string {
  const span = locate(text, path)
  return span === undefined ? text : text.slice(0, span.start) + JSON.stringify(value) + text.slice(span.end)
}

/** The text of an object with one more member, put first. */
export function prependMember(object: string, key: string, value: string): string {
  const at = skipSpace(object, 0) + 1
  const comma = object[skipSpace(object, at)] === '}' ? '' : ','
  return `${object.slice(0, at)}${JSON.stringify(key)}:${value}${comma}${object.slice(at)}`
}

/** The wanted paths that go on in the same way. */
interface Branch {
  /** Which of the paths end here. */
  readonly ends: number[]
  readonly steps: Map<string | number, Branch>
}

/**
 * The spans of the values at many paths, in the order of the paths, in one walk over the text: as many
 * calls of `locate` would take a walk each.
 */
export function locateAll(text: string, paths: readonly JsonPath[]): (Span | undefined)[] {
  const found = new Array<Span | undefined>(paths.length).fill(undefined)
  const root = locate(text, [])
  if (root !== undefined) walk(text, root, grow(paths), found)
  return found
}

function grow(paths: readonly JsonPath[]): Branch {
  const root: Branch = { ends: [], steps: new Map() }
  for (const [index, path] of paths.entries()) {
    let branch = root
    for (const step of path) {
      let next = branch.steps.get(step)
      if (next === undefined) branch.steps.set(step, (next = { ends: [], steps: new Map() }))
      branch = next
    }
    branch.ends.push(index)
  }
  return root
}

function walk(text: string, span: Span, { ends, steps }: Branch, found: (Span | undefined)[]): void {
  for (const index of ends) found[index] = { start: span.start, end: span.end }
  if (steps.size === 0) return
  for (const [step, inner] of children(text, span)) {
    const branch = steps.get(step)
    if (branch !== undefined) walk(text, inner, branch, found)
  }
}

/** What stands in an object or array, each under its last name. */
function children(text: string, { start }: Span): Iterable<[string | number, Span]> {
  switch (text[start]) {
    case '{':
      return new Map([...members(text, start)].map((member) => [member.key, member]))
    case '[':
      return [...elements(text, start)].entries()
    default:
      return []
  }
}
