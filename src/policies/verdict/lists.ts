import type { Partial } from '../../mesh/call.ts'
import type { Habit } from './habit.ts'

/** What is remembered of the lists of a tool. */
export interface ListHabits {
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
export function missingItems(
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
