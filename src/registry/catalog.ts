import { createHash } from 'node:crypto'
import { nextTurn } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { TurnBudget } from '../mesh/turns.ts'
import { during } from '../mesh/work.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { elements, locate } from '../protocol/json-span.ts'
import { kinds, listKinds, type ListKind } from './kinds.ts'

/** One tool, prompt, resource or template: its exact JSON text, under its server's own name. */
export interface Entry {
  /** Name, URI or URI template. */
  readonly key: string
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
  /** SHA-256 of the text, first 16 hex digits: changes when anything in the entry does. */
  readonly fingerprint: string
}

/** What a server offered when it was asked last. */
export interface Catalog {
  /** Milliseconds since the Unix epoch; undefined when it was never asked with success. */
  readonly fetchedAt: number | undefined
  readonly lists: Readonly<Record<ListKind, readonly Entry[]>>
}

export const emptyCatalog: Catalog = {
  fetchedAt: undefined,
  lists: { tools: [], prompts: [], resources: [], resourceTemplates: [] },
}

/** Most pages of a list that are fetched, and most entries kept of it. */
const MAX_PAGES = 1_000
const MAX_ENTRIES = 20_000

/** Sends one list request and gives the text of its whole response. Rejects with a `GatewayError`. */
export type Ask = (
  method: string,
  params: { cursor?: string },
) => Promise<{
  text: string
  value: Readonly<Record<string, unknown>>
}>

/** Fetches all pages of one list. Rejects with a `GatewayError`. */
export async function fetchList(kind: ListKind, ask: Ask): Promise<Entry[]> {
  const entries = new Map<string, Entry>()
  let cursor: string | undefined
  for (let page = 0; page < MAX_PAGES; page++) {
    const { text, value } = await ask(kinds[kind].method, cursor === undefined ? {} : { cursor })
    await readEntries(kind, text, entries)
    const next = isObject(value.result) ? value.result.nextCursor : undefined
    if (typeof next !== 'string' || next === cursor) return [...entries.values()]
    cursor = next
  }
  throw gatewayError('bad_reply', `the list of ${kind} has more than ${MAX_PAGES} pages`)
}

/** Reads one page, over several turns of the event loop when it is a long one. */
async function readEntries(kind: ListKind, text: string, entries: Map<string, Entry>): Promise<void> {
  const list = during('catalog', () => locate(text, ['result', kind]))
  if (list === undefined || text[list.start] !== '[') return
  const turns = new TurnBudget()
  for (const { start, end } of elements(text, list.start)) {
    turns.begin()
    const entry = during('catalog', () => entryOf(kind, text.slice(start, end)))
    if (entry !== undefined) entries.set(entry.key, entry)
    if (entries.size > MAX_ENTRIES) throw gatewayError('bad_reply', `more than ${MAX_ENTRIES} ${kind}`)
    if (turns.spent(end - start)) await nextTurn()
  }
}

function entryOf(kind: ListKind, text: string): Entry | undefined {
  const value: unknown = JSON.parse(text)
  const key = isObject(value) ? value[kinds[kind].key] : undefined
  if (!isObject(value) || typeof key !== 'string') return undefined
  return { key, text, value, fingerprint: fingerprint(text) }
}

function fingerprint(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

/** The lists that differ between two catalogs, order included. */
export function changedKinds(before: Catalog, after: Catalog): ListKind[] {
  const print = (catalog: Catalog, kind: ListKind) =>
    catalog.lists[kind].map((entry) => entry.key + entry.fingerprint).join()
  return listKinds.filter((kind) => print(before, kind) !== print(after, kind))
}
