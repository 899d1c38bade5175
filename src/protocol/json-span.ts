/**
 * Finds and replaces values inside a JSON text without re-serialising the text: unknown fields, number precision, key
 * order and white space stay as written. All functions expect a text accepted by `JSON.parse`.
 */

/** A range of a text, from `start` up to, not including, `end`. */
export interface Span {
  readonly start: number
  readonly end: number
}

export type JsonPath = readonly (string | number)[]

/** Returns the span of the value at `path`. The last of duplicate keys counts, as for `JSON.parse`. */
export function locate(text: string, path: JsonPath): Span | undefined {
  let at = skipSpace(text, 0)
  let found: Span | undefined
  for (const step of path) {
    const opening = text.charCodeAt(at)
    found = undefined
    if (typeof step === 'string' && opening === OPEN_OBJECT) found = findMember(text, at, step)
    else if (typeof step === 'number' && opening === OPEN_ARRAY) {
      let index = 0
      for (const element of elements(text, at)) if (index++ === step) found = element
    }
    if (found === undefined) return undefined
    at = found.start
  }
  return found ?? { start: at, end: skipValue(text, at) }
}

function memberAt(text: string, keyStart: number): Span & { readonly keyEnd: number } {
  const keyEnd = skipString(text, keyStart)
  const start = skipSpace(text, skipSpace(text, keyEnd) + 1)
  return { keyEnd, start, end: skipValue(text, start) }
}

/** Returns the last member `name` of the object that opens at `at`. Cheaper than `members`, which slices all keys. */
export function findMember(text: string, at: number, name: string): Span | undefined {
  let found: Span | undefined
  at = skipSpace(text, at + 1)
  while (text.charCodeAt(at) !== CLOSE_OBJECT) {
    const { keyEnd, start, end } = memberAt(text, at)
    if (isKey(text, at, keyEnd, name)) found = { start, end }
    at = skipComma(text, end)
  }
  return found
}

/** Whether the string from `start` to `end`, quotes included, equals `name`, perhaps with escapes. */
function isKey(text: string, start: number, end: number, name: string): boolean {
  if (end - start === name.length + 2 && text.startsWith(name, start + 1)) return true
  for (let at = start + 1; at < end - 1; at++)
    if (text.charCodeAt(at) === BACKSLASH) return JSON.parse(text.slice(start, end)) === name
  return false
}

/** Returns the spans of members, in the order of `names`, in one walk. The last of duplicate keys counts. */
export function locateMembers(text: string, names: readonly string[]): (Span | undefined)[] {
  const found = new Array<Span | undefined>(names.length).fill(undefined)
  let at = skipSpace(text, 0)
  if (text.charCodeAt(at) !== OPEN_OBJECT) return found
  at = skipSpace(text, at + 1)
  while (text.charCodeAt(at) !== CLOSE_OBJECT) {
    const { keyEnd, start, end } = memberAt(text, at)
    for (let index = 0; index < names.length; index++)
      if (isKey(text, at, keyEnd, names[index] as string)) found[index] = { start, end }
    at = skipComma(text, end)
  }
  return found
}

/** A member of an object; the span covers only the member's value. */
export interface Member extends Span {
  readonly key: string
  readonly keyStart: number
}

export function members(text: string, at: number): Member[] {
  const all: Member[] = []
  at = skipSpace(text, at + 1)
  while (text.charCodeAt(at) !== CLOSE_OBJECT) {
    const { keyEnd, start, end } = memberAt(text, at)
    const quoted = text.slice(at, keyEnd)
    const key = quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1)
    all.push({ key, keyStart: at, start, end })
    at = skipComma(text, end)
  }
  return all
}

export function* elements(text: string, at: number): Generator<Span> {
  at = skipSpace(text, at + 1)
  while (text.charCodeAt(at) !== CLOSE_ARRAY) {
    const end = skipValue(text, at)
    yield { start: at, end }
    at = skipComma(text, end)
  }
}

export interface Edit extends Span {
  readonly with: string
}

/**
 * Returns the edit that replaces a span. Lists the properties one by one: a spread creates a new V8 object shape each
 * time, which is slow.
 */
export const edit = ({ start, end }: Span, by: string): Edit => ({ start, end, with: by })

export function spliceOne(text: string, { start, end }: Span, by: string): string {
  return text.slice(0, start) + by + text.slice(end)
}

/**
 * Returns the edits sorted by start. Returns an already sorted array as it is, because sorting two edits costs more
 * than applying both.
 */
export function inOrder(edits: readonly Edit[]): readonly Edit[] {
  const isSorted = edits.every(({ start }, index) => index === 0 || (edits[index - 1] as Edit).start <= start)
  return isSorted ? edits : edits.toSorted((a, b) => a.start - b.start)
}

/** Applies edits that do not overlap, in any order. */
export function splice(text: string, edits: readonly Edit[]): string {
  if (edits.length === 0) return text
  let result = ''
  let at = 0
  for (const edit of inOrder(edits)) {
    result += text.slice(at, edit.start) + edit.with
    at = edit.end
  }
  return result + text.slice(at)
}

/** Returns the edit that replaces the value at `path`; no edit when the path has no value. */
export function replacing(text: string, path: JsonPath, value: unknown): Edit[] {
  const span = locate(text, path)
  return span === undefined ? [] : [edit(span, JSON.stringify(value))]
}

/** Returns the text with the value at `path` replaced; unchanged when the path has no value. */
export function replaceAt(text: string, path: JsonPath, value: unknown): string {
  return splice(text, replacing(text, path, value))
}

/** Returns the text without any member at `path`, duplicates included; unchanged without such a member. */
export function withoutMember(text: string, path: JsonPath): string {
  return splice(text, removing(text, path))
}

/** Returns the edits of `withoutMember`. */
export function removing(text: string, path: JsonPath): Edit[] {
  const parent = locate(text, path.slice(0, -1))
  if (parent === undefined || text.charCodeAt(parent.start) !== OPEN_OBJECT) return []
  const all = members(text, parent.start)
  const isKept = ({ key }: Member) => key !== path.at(-1)
  const lastKept = all.findLastIndex(isKept)
  const edits = all
    .slice(0, lastKept + 1)
    .flatMap((member, index) =>
      isKept(member) ? [] : [edit({ start: member.keyStart, end: all[index + 1]!.keyStart }, '')],
    )
  const [first, last] = [all[lastKept + 1], all.at(-1)]
  if (first === undefined || last === undefined) return edits
  // No member follows the removed members, so the comma before them is removed as well.
  return [...edits, edit({ start: all[lastKept]?.end ?? first.keyStart, end: last.end }, '')]
}

/** Returns the text of an object with one more member, in front of all others. */
export function prependMember(object: string, key: string, value: string): string {
  return splice(object, [prepending(object, skipSpace(object, 0), key, value)])
}

/** Returns the edit that puts one more member in front of all others of the object that opens at `at`. */
export function prepending(text: string, at: number, key: string, value: string): Edit {
  const inside = at + 1
  const comma = text.charCodeAt(skipSpace(text, inside)) === CLOSE_OBJECT ? '' : ','
  return { start: inside, end: inside, with: `${JSON.stringify(key)}:${value}${comma}` }
}

/** A node of the tree of wanted paths; its paths share a beginning. */
interface Branch {
  /** The indices of the paths that end here. */
  readonly ends: number[]
  readonly steps: Map<string | number, Branch>
}

/** Returns the spans of values, in the order of `paths`, in one walk over the text; `locate` walks once per path. */
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

/** Returns the parts of an object or array, each under its key or index; the last of equal keys counts. */
function children(text: string, { start }: Span): Iterable<[string | number, Span]> {
  switch (text[start]) {
    case '{':
      return new Map(members(text, start).map((member) => [member.key, member]))
    case '[':
      return [...elements(text, start)].entries()
    default:
      return []
  }
}

/**
 * Functions that skip parts of a JSON text: each takes a position and returns the position behind the part. They check
 * as little as possible, so results mean something only if `JSON.parse` accepts the text. For any other text, a
 * function may also return the end of the text.
 */

export const QUOTE = 0x22
export const BACKSLASH = 0x5c
export const COMMA = 0x2c
export const OPEN_OBJECT = 0x7b
export const CLOSE_OBJECT = 0x7d
export const OPEN_ARRAY = 0x5b
export const CLOSE_ARRAY = 0x5d

export function skipSpace(text: string, at: number): number {
  for (;;) {
    const unit = text.charCodeAt(at)
    if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) return at
    at++
  }
}

/**
 * Takes the position behind a member or element. Returns the position of the next member or element, or of the closing
 * bracket.
 */
export function skipComma(text: string, at: number): number {
  at = skipSpace(text, at)
  return text.charCodeAt(at) === COMMA ? skipSpace(text, at + 1) : at
}

/** Skips a string; `at` is the position of its opening quote. */
export function skipString(text: string, at: number): number {
  for (;;) {
    at = text.indexOf('"', at + 1)
    if (at === -1) return text.length
    let slashes = 0
    while (text.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return at + 1
  }
}

/** Skips a value of any kind; `at` is the position of its first character. */
export function skipValue(text: string, at: number): number {
  const opening = text.charCodeAt(at)
  if (opening === QUOTE) return skipString(text, at)
  if (opening === OPEN_OBJECT || opening === OPEN_ARRAY) return skipNested(text, at)
  while (at < text.length && !endsLiteral(text.charCodeAt(at))) at++
  return at
}

/** Whether a character ends a number or a word: a comma, a closing bracket, or white space. */
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

/** Whether objects and arrays are nested more than `most` levels deep. */
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
