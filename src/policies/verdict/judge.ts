import type { Partial, Verdict } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../protocol/meta.ts'
import type { Mismatch } from '../state/schemas/mismatch.ts'
import { cutText, spoiltCopy } from './copy.ts'
import type { Habit } from './habit.ts'
import { jsonEnd } from './json-end.ts'
import type { ToolMemory } from './memory.ts'
import { type Drift, TEXT } from './shape.ts'
import { beginsLikeJson, firstText, isSurelyJson } from './text.ts'

/** How good a reply was, and what is wrong with it. */
export interface Judgement {
  readonly verdict: Verdict
  readonly partial?: Partial
  readonly drift?: Drift
  /** In words; for `schema_invalid` and `json_invalid`. */
  readonly breach?: string
}

/** What is looked for besides the schema. */
export interface Looks {
  /** Text that claims to be JSON, and is none. */
  readonly json: boolean
  readonly partials: boolean
  readonly shapes: boolean
}

const jsonInvalid: Judgement = { verdict: 'json_invalid', breach: 'the reply claims to be JSON and is none' }
const cut: Judgement = { verdict: 'partial_silent', partial: cutText }

/** What the first mismatch with the `outputSchema` means. */
export function breachOf({ path, expected, keyword, limit }: Mismatch, structured: unknown): Judgement {
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

/** What a reply shows without a schema; undefined when nothing is remarkable. */
export function look(
  { content, structuredContent }: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
  memory: ToolMemory | undefined,
  looks: Looks,
): Judgement | undefined {
  const text = firstText(content)
  const json = text !== undefined && beginsLikeJson(text)
  let value = structuredContent
  if (value !== undefined) {
    const spoilt = json && looks.partials ? spoiltCopy(text, value, memory?.copy) : undefined
    if (spoilt !== undefined) return { verdict: 'partial_silent', partial: spoilt }
  } else if (json) {
    value = parseJson(text)
    if (value === undefined) {
      const judgement = noJson(text, memory, looks)
      if (judgement !== undefined) return judgement
    }
  }
  if (value === undefined) {
    if (text === undefined) return undefined
    memory?.json.break()
    return drifted(TEXT, memory, looks)
  }
  memory?.json.keep()
  const partial = looks.partials && isObject(value) ? missingItems(value, args, memory) : undefined
  return partial === undefined ? drifted(value, memory, looks) : { verdict: 'partial_silent', partial }
}

/** What to make of a text that begins like JSON and does not parse; undefined: it is text after all. */
function noJson(text: string, memory: ToolMemory | undefined, looks: Looks): Judgement | undefined {
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

function drifted(value: unknown, memory: ToolMemory | undefined, { shapes }: Looks): Judgement | undefined {
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

/** What is remembered of the lists of a tool. */
interface ListHabits {
  /** Lists are as long as their total. */
  readonly whole: Habit
  /** First pages that are shorter have a cursor to the next one. */
  readonly cursor: Habit
}

const totals = ['total', 'totalCount', 'total_count', 'count']

/** Names that go with pages, in a reply or in arguments: then a list shorter than its total is as it should be. */
const paging =
  /^(?:next|prev|cursor|after|before|has_?(?:more|next)|more|offset|limit|max|top|first|last|page|per_?page|skip|start|from|to|size|take|range|slice|n|k|num|truncated|links?|_links|pag(?:ing|ination)|meta)$|(?:cursor|token|page|limit|count|size|offset|results?|items)$/i

const cursors = ['nextCursor', 'next_cursor', 'next', 'nextPageToken', 'next_page_token']

/** Totals that count items and can mean nothing else. */
const plainTotals: ReadonlySet<string> = new Set(['totalCount', 'total_count'])

/** Lists that stand beside what was counted. */
const asides =
  /^(?:errors?|warnings?|messages?|notes?|tags|labels|facets|suggestions|hints|columns|headers|fields)$/i

/** Names beside which a total is a sum of money. */
const money = /price|amount|currency|tax|cost|discount|subtotal/i

/** Lengths that look like a page: whole multiples of five. */
const looksLikePage = (length: number): boolean => length > 0 && length % 5 === 0

/**
 * What is missing when an object's only list is shorter than the total beside it, and nothing says that it is a page
 * of a longer one: neither a name in the reply, nor in the arguments, nor what the tool did before.
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
  if (lost) return found(`${length} of ${total} items, without the cursor to the next ones`)
  for (const other in value)
    if (other !== key && other !== name && (paging.test(other) || money.test(other))) return undefined
  const expected = whole?.strong === true
  const suspicious =
    (whole?.possible ?? true) && !looksLikePage(length) && (length > 0 || plainTotals.has(name))
  whole?.break()
  return expected || suspicious ? found(`${length} items, where the reply itself says ${total}`) : undefined
}

const MOST_MISSING = 20
const LONGEST_MISSING = 200
const LONGEST_REASON = 300

/** What a server declares to be missing of its result, bounded; undefined when it declares nothing. */
export function declaredPartial({ _meta }: Readonly<Record<string, unknown>>): Partial | undefined {
  const declared = isObject(_meta) ? _meta[PARTIAL_KEY] : undefined
  if (!isObject(declared)) return undefined
  const { reason, missing, completeness } = declared
  const named = Array.isArray(missing) ? missing.filter((item) => typeof item === 'string') : []
  return {
    source: 'declared',
    reason: typeof reason === 'string' ? clean(reason, LONGEST_REASON) : 'the server says that it is partial',
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
