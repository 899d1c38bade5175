import type { Partial, Verdict } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { beginningOf, isSurelyLonger } from '../../protocol/large-message.ts'
import { PARTIAL_KEY } from '../../protocol/meta.ts'
import type { Mismatch } from '../state/schemas/mismatch.ts'
import { type Drift, type Habit, TEXT, type ToolMemory } from './memory.ts'

/** Longest text to compare with structured content, in characters. */
const MAX_COMPARED = 64 * 1024

/** The finding for a cut JSON text. */
const cutText: Partial = {
  source: 'detected',
  reason: 'the JSON text ends in the middle',
  notice: false,
}

/**
 * Checks the text copy of structured content, meant for older clients. Returns the finding when the text is meant as a
 * copy and says something else. A text is meant as a copy if the tool's texts were copies before, or if it has the same
 * names at its top.
 */
function spoiltCopy(text: string, structured: unknown, copies: Habit | undefined): Partial | undefined {
  if (text.length > MAX_COMPARED) return undefined
  const value = parseJson(text)
  if (value === undefined) return isSurelyJson(text) && jsonEnd(text) === 'cut' ? cutText : undefined
  const path = difference(structured, value)
  if (path === undefined) {
    copies?.keep()
    return undefined
  }
  const sameKeys = isObject(value) && isObject(structured) && haveSameKeys(value, structured)
  const spoilt = copies === undefined ? sameKeys : copies.strong || (sameKeys && copies.possible)
  copies?.break()
  if (!spoilt) return undefined
  const reason = 'the text and the structured content differ'
  return {
    source: 'detected',
    reason,
    ...(path === '' ? {} : { missing: [path.slice(0, 200)] }),
    notice: false,
  }
}

/** Most nested values to compare. Larger contents count as equal, because their rest is not compared. */
const MOST_VALUES = 100_000

/** Longest path to report, in steps. */
const MOST_STEPS = 64

interface Place {
  readonly left: Readonly<Record<string, unknown>>
  readonly right: Readonly<Record<string, unknown>>
  readonly keys: readonly string[]
  at: number
}

/** Returns the JSON Pointer of the first difference between JSON values of any depth; undefined when equal. */
export function difference(a: unknown, b: unknown): string | undefined {
  const open: Place[] = []
  const enter = (left: unknown, right: unknown): boolean => {
    if (left === right) return true
    const place = placeOf(left, right)
    if (place === undefined) return false
    open.push(place)
    return true
  }
  if (!enter(a, b)) return ''
  for (let compared = 0; compared < MOST_VALUES; compared++) {
    const place = open.at(-1)
    if (place === undefined) return undefined
    const { left, right, keys } = place
    const key = keys[place.at++]
    if (key === undefined) {
      if (keys.length !== Object.keys(right).length) return pointerTo(open.slice(0, -1))
      open.pop()
    } else if (!Object.hasOwn(right, key) || !enter(left[key], right[key])) return pointerTo(open)
  }
  return undefined
}

function placeOf(left: unknown, right: unknown): Place | undefined {
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null)
    return undefined
  if (Array.isArray(left) !== Array.isArray(right)) return undefined
  return { left: left as Place['left'], right: right as Place['right'], keys: Object.keys(left), at: 0 }
}

/** Returns the JSON Pointer made of the current key of each place. */
function pointerTo(places: readonly Place[]): string {
  return places
    .slice(0, MOST_STEPS)
    .map(({ keys, at }) => `/${keys[at - 1]}`)
    .join('')
}

/** Returns whether two objects have the same names at their top. */
function haveSameKeys(a: object, b: object): boolean {
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key))
}

export interface ReplyVerdict {
  readonly verdict: Verdict
  readonly partial?: Partial
  readonly drift?: Drift
  /** The problem in words; only for `schema_invalid` and `json_invalid`. */
  readonly breach?: string
}

/** The faults to look for besides mismatches with the schema. */
export interface Looks {
  /** Text that claims to be JSON, and is none. */
  readonly json: boolean
  readonly partials: boolean
  readonly shapes: boolean
}

const jsonInvalid: ReplyVerdict = {
  verdict: 'json_invalid',
  breach: 'the reply claims to be JSON and is not',
}
const cut: ReplyVerdict = { verdict: 'partial_silent', partial: cutText }

/** Returns the verdict for the first mismatch with the `outputSchema`. */
export function breachOf({ path, expected, keyword, limit }: Mismatch, structured: unknown): ReplyVerdict {
  const breach = `the reply breaks the tool’s outputSchema at ${path}: ${expected}`
  if (keyword !== 'minItems') return { verdict: 'schema_invalid', breach }
  const length = lengthAt(structured, path)
  const partial: Partial = {
    source: 'detected',
    reason: 'fewer items than the outputSchema demands',
    missing: [path],
    ...(length === undefined || !limit ? {} : { completeness: length / limit }),
    notice: false,
  }
  return { verdict: 'schema_invalid', breach, partial }
}

/**
 * Returns the verdict on a result that breaks the protocol's form; undefined for a well-formed result. Official clients
 * reject malformed replies.
 */
export function malformedAt({
  content,
  isError,
}: Readonly<Record<string, unknown>>): ReplyVerdict | undefined {
  const breaks = (where: string): ReplyVerdict => ({
    verdict: 'schema_invalid',
    breach: `the reply breaks the protocol at ${where}`,
  })
  if (isError !== undefined && typeof isError !== 'boolean') return breaks('/isError: must be true or false')
  if (content === undefined) return undefined
  if (!Array.isArray(content)) return breaks('/content: must be a list')
  const block = content.findIndex((block: unknown) => !isObject(block) || typeof block.type !== 'string')
  return block === -1 ? undefined : breaks(`/content/${block}: must be an object with a type`)
}

/** Returns the verdict on a reply without a schema; undefined when nothing is remarkable. */
export function look(
  { content, structuredContent }: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
  memory: ToolMemory | undefined,
  looks: Looks,
): ReplyVerdict | undefined {
  const block = firstText(content)
  const beginning = block && beginningOf(block, 'text')
  const json = beginning !== undefined && beginsLikeJson(beginning) ? shortTextOf(block) : undefined
  let value = structuredContent
  if (value !== undefined) {
    const spoilt = json !== undefined && looks.partials ? spoiltCopy(json, value, memory?.copy) : undefined
    if (spoilt !== undefined) return { verdict: 'partial_silent', partial: spoilt }
  } else if (json !== undefined) {
    value = parseJson(json)
    if (value === undefined) {
      const judgement = noJson(json, memory, looks)
      if (judgement !== undefined) return judgement
    }
  }
  if (value === undefined) {
    if (beginning === undefined) return undefined
    memory?.json.break()
    return drifted(TEXT, memory, looks)
  }
  memory?.json.keep()
  const partial = looks.partials && isObject(value) ? missingItems(value, args, memory) : undefined
  return partial === undefined ? drifted(value, memory, looks) : { verdict: 'partial_silent', partial }
}

/** Returns the verdict on a text that begins like JSON and does not parse; undefined for plain text. */
function noJson(text: string, memory: ToolMemory | undefined, looks: Looks): ReplyVerdict | undefined {
  const always = memory?.json.strong === true
  if (!always && !isSurelyJson(text)) return undefined
  const end = jsonEnd(text)
  if (end === 'more' && !always) return undefined
  if (end === 'cut' ? looks.partials : looks.json) {
    memory?.json.break()
    return end === 'cut' ? cut : jsonInvalid
  }
  return undefined
}

function drifted(
  value: unknown,
  memory: ToolMemory | undefined,
  { shapes }: Looks,
): ReplyVerdict | undefined {
  const drift = shapes ? memory?.shape.observe(value) : undefined
  return drift === undefined ? undefined : { verdict: 'drift', drift }
}

function lengthAt(value: unknown, path: string): number | undefined {
  let at = value
  for (const step of path.split('/').slice(1)) {
    if (step === '') continue
    const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
    at = typeof at === 'object' && at !== null ? (at as Readonly<Record<string, unknown>>)[key] : undefined
  }
  return Array.isArray(at) ? at.length : undefined
}

/** The rules that a tool's lists seem to follow. */
interface ListHabits {
  /** The rule that lists are as long as their total. */
  readonly whole: Habit
  /** The rule that a shorter first page has a cursor to the next page. */
  readonly cursor: Habit
}

const totals = ['total', 'totalCount', 'total_count', 'count']

/** Names that show paging, in a reply or in arguments: a list may then be shorter than its total. */
const paging =
  /^(?:next|prev|cursor|after|before|has_?(?:more|next)|more|offset|limit|max|top|first|last|page|per_?page|skip|start|from|to|size|take|range|slice|n|k|num|truncated|links?|_links|pag(?:ing|ination)|meta)$|(?:cursor|token|page|limit|count|size|offset|results?|items)$/i

const cursors = ['nextCursor', 'next_cursor', 'next', 'nextPageToken', 'next_page_token']

/** Names of totals that can only mean a number of items. */
const plainTotals: ReadonlySet<string> = new Set(['totalCount', 'total_count'])

/** Names of lists that no total counts. */
const asides =
  /^(?:errors?|warnings?|messages?|notes?|tags|labels|facets|suggestions|hints|columns|headers|fields)$/i

/** Names beside which a total is a sum of money. */
const money = /price|amount|currency|tax|cost|discount|subtotal/i

/** Lengths typical of a page: whole multiples of five. */
const looksLikePage = (length: number): boolean => length > 0 && length % 5 === 0

/**
 * Returns the finding when an object's only list is shorter than the total beside it. Undefined when something marks
 * the list as a page: a name in the reply, a name in the arguments, or the tool's habit.
 */
function missingItems(
  value: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
  habits: ListHabits | undefined,
): Partial | undefined {
  const name = totals.find((key) => Number.isInteger(value[key]))
  if (name === undefined) return undefined
  const total = value[name] as number
  const lists = Object.entries(value).filter(([, member]) => Array.isArray(member))
  const [key, list] = (lists[0] ?? []) as [string?, unknown[]?]
  if (lists.length !== 1 || key === undefined || list === undefined || asides.test(key)) return undefined
  const { length } = list
  if (length >= total) {
    if (length === total && total > 0) habits?.whole.keep()
    return undefined
  }
  const found = (reason: string): Partial => ({
    source: 'detected',
    reason,
    missing: [`/${key}`],
    completeness: length / total,
    notice: false,
  })
  if (Object.keys(args).some((arg) => paging.test(arg))) return undefined
  if (cursors.some((cursor) => value[cursor] !== undefined && value[cursor] !== null)) {
    habits?.cursor.keep()
    return undefined
  }
  const { whole, cursor } = habits ?? {}
  const lost = cursor?.strong === true
  cursor?.break()
  if (lost) return found(`${length} of ${total} items, without a cursor to the rest`)
  for (const other in value)
    if (other !== key && other !== name && (paging.test(other) || money.test(other))) return undefined
  const expected = whole?.strong === true
  const suspicious =
    (whole?.possible ?? true) && !looksLikePage(length) && (length > 0 || plainTotals.has(name))
  whole?.break()
  return expected || suspicious ? found(`${length} items, but the reply itself says ${total}`) : undefined
}

const MOST_MISSING = 20
const LONGEST_MISSING = 200
const LONGEST_REASON = 300

/** Returns the partial result that a server declares, bounded; undefined when the server declares nothing. */
export function declaredPartial({ _meta }: Readonly<Record<string, unknown>>): Partial | undefined {
  const declared = isObject(_meta) ? _meta[PARTIAL_KEY] : undefined
  if (!isObject(declared)) return undefined
  const { reason, missing, completeness } = declared
  const named = Array.isArray(missing) ? missing.filter((item) => typeof item === 'string') : []
  return {
    source: 'declared',
    reason: typeof reason === 'string' ? clean(reason, LONGEST_REASON) : 'declared partial by the server',
    ...(named.length > 0
      ? { missing: named.slice(0, MOST_MISSING).map((item) => clean(item, LONGEST_MISSING)) }
      : {}),
    ...(typeof completeness === 'number' ? { completeness: Math.min(1, Math.max(0, completeness)) } : {}),
    notice: false,
  }
}

function clean(text: string, longest: number): string {
  return text.slice(0, longest).replace(/\p{Cc}/gu, ' ')
}

/**
 * Why `JSON.parse` refuses a text: `cut` is the beginning of some JSON text, `more` a complete value with more text
 * behind it (lines of JSON, a note), `broken` is wrong in the middle.
 */
export type JsonEnd = 'cut' | 'more' | 'broken'

const space = /[ \t\n\r]*/y
const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
const scalar = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/y

/** Beginnings of strings and scalars, cut off at the end of the text. */
const begunString =
  /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?$/y
const begunScalar = /(?:t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?|-|-?(?:0|[1-9]\d*)(?:\.|(?:\.\d+)?[eE][+-]?))$/y

/** Classifies a text that begins with `{` or `[` and that `JSON.parse` refuses. */
export function jsonEnd(text: string): JsonEnd {
  const open: string[] = []
  let at = 0
  /** The expected token: a value, a key, the colon after a key, or the token after a value. */
  let expected: 'value' | 'key' | 'colon' | 'next' = 'value'
  /** Whether the latest opened bracket may close at once. */
  let fresh = false

  const take = (pattern: RegExp): boolean => {
    pattern.lastIndex = at
    if (!pattern.test(text)) return false
    at = pattern.lastIndex
    return true
  }

  for (;;) {
    take(space)
    if (expected === 'next' && open.length === 0) return 'more'
    const unit = text[at]
    if (unit === undefined) return 'cut'
    const closes = open.at(-1) === '{' ? '}' : ']'
    if (unit === closes && open.length > 0 && (expected === 'next' || fresh)) {
      open.pop()
      at++
      expected = 'next'
    } else if (expected === 'next') {
      if (unit !== ',') return 'broken'
      at++
      expected = open.at(-1) === '{' ? 'key' : 'value'
    } else if (expected === 'colon') {
      if (unit !== ':') return 'broken'
      at++
      expected = 'value'
    } else if (expected === 'key') {
      if (!take(string)) return take(begunString) ? 'cut' : 'broken'
      expected = 'colon'
    } else if (unit === '{' || unit === '[') {
      open.push(unit)
      at++
      expected = unit === '{' ? 'key' : 'value'
      fresh = true
      continue
    } else {
      if (!take(string) && !take(scalar)) return take(begunString) || take(begunScalar) ? 'cut' : 'broken'
      // The pattern `scalar` takes only the 12 of a cut `12.`.
      if (at < text.length && !/[\s,\]}]/.test(text[at] as string)) return take(rest) ? 'cut' : 'broken'
      expected = 'next'
    }
    fresh = false
  }
}

/** The characters that may follow the digits of a cut number. */
const rest = /(?:\.|[eE][+-]?)$/y

/** Longest text to read as JSON, in characters. */
const MAX_TEXT = 256 * 1024

/** Returns the first block of a result's content, if declared as text; undefined otherwise. */
function firstText(content: unknown): Readonly<Record<string, unknown>> | undefined {
  if (!Array.isArray(content)) return undefined
  const block: unknown = content[0]
  return isObject(block) && block.type === 'text' ? block : undefined
}

function shortTextOf(block: Readonly<Record<string, unknown>> | undefined): string | undefined {
  if (block === undefined || isSurelyLonger(block, 'text', MAX_TEXT)) return undefined
  const { text } = block
  return typeof text === 'string' && text.length <= MAX_TEXT ? text : undefined
}

function beginsLikeJson(text: string): boolean {
  let at = 0
  let unit = text.charCodeAt(0)
  while (unit === 0x20 || unit === 0x0a || unit === 0x0d || unit === 0x09) unit = text.charCodeAt(++at)
  return unit === 0x7b || unit === 0x5b
}

/** Returns whether a text begins like nothing but JSON; a link, a log line and a template do not. */
function isSurelyJson(text: string): boolean {
  return /^\s*(?:\{\s*"|\[\s*(?:\{\s*"|\[|"|-?\d+(?:\.\d+)?\s*,))/.test(text)
}
