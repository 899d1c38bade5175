import { parseExactly } from '../protocol/json-parse.ts'
import { createHash } from 'node:crypto'
import { nextTurn } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { about, injectedBy, makersOf } from '../mesh/injected.ts'
import { TurnBudget } from '../mesh/turns.ts'
import { during } from '../mesh/work.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { isDeeperThan, elements, locate } from '../protocol/json-span.ts'
import { isWider } from '../protocol/output-schema.ts'
import { ClientSchemas } from './client-schema.ts'
import { wellFormed } from './entry-shape.ts'
import { kinds, type ListKind, listKinds, uiPaths } from '../protocol/lists.ts'
import type { Era } from '../protocol/versions.ts'

/** A tool, prompt, resource or template: its exact JSON text, under its server's own name. */
export interface CatalogEntry {
  /** Name, URI or URI template. */
  readonly key: string
  readonly text: string
  /** Parsed at each access, because a kept value takes many times the memory of the text and is rarely read. */
  readonly value: Readonly<Record<string, unknown>>
  /** SHA-256 of the text, first 16 hex digits. */
  readonly fingerprint: string
  /** Whether the entry names a user interface by URI. */
  readonly hasUi: boolean
  /** Whether the entry is a tool whose results may be other values than objects. */
  readonly isWider: boolean
  /** Whether its list has a different entry of the same key, so a call is ambiguous. */
  readonly isAmbiguous: boolean
}

/** The lists of a server, as fetched last. */
export interface Catalog {
  /** Milliseconds since the Unix epoch; undefined before the first success. */
  readonly fetchedAt: number | undefined
  readonly lists: Readonly<Record<ListKind, readonly CatalogEntry[]>>
  /** Why a list is incomplete; complete lists have no member. */
  readonly cut?: Readonly<Partial<Record<ListKind, string>>>
}

export const emptyCatalog: Catalog = {
  fetchedAt: undefined,
  lists: { tools: [], prompts: [], resources: [], resourceTemplates: [] },
}

/** Most pages fetched and entries kept per list. */
const MAX_PAGES = 1_000
const MAX_ENTRIES = 10_000

/** Longest cursor followed, in characters. */
const MAX_CURSOR = 8_192

/** Deepest nesting of an entry: code walking an entry later may recurse once per level. */
const MAX_DEPTH = 256

/** Sends a list request and resolves to its whole response. Rejects with a `GatewayError`. */
export type Ask = (
  method: string,
  params: { cursor?: string },
) => Promise<{
  text: string
  value: Readonly<Record<string, unknown>>
}>

export interface Fetched {
  readonly entries: readonly CatalogEntry[]
  /** Why entries are missing. */
  readonly cut: string | undefined
}

/**
 * Fetches the pages of a list, up to `limit` bytes of text. Stops at any limit and returns the entries so far. `era`:
 * the era of the request. Rejects with a `GatewayError`.
 */
export async function fetchList(kind: ListKind, ask: Ask, limit: number, era: Era): Promise<Fetched> {
  const kept = new CollectedPages(kind, limit, era)
  const followed = new Set<string>()
  let cursor: string | undefined
  for (;;) {
    // Holds no reference to the response, so it is not kept in memory during the next request.
    cursor = await kept.take(await ask(kinds[kind].method, cursor === undefined ? {} : { cursor }))
    if (cursor === undefined) break
    if (followed.has(cursor)) kept.stop(`the pages go in circles${kept.blame}`)
    else if (cursor.length > MAX_CURSOR) kept.stop(`a cursor of more than ${MAX_CURSOR} characters`)
    else if (followed.size === MAX_PAGES - 1) kept.stop(`more than ${MAX_PAGES} pages`)
    if (kept.end !== undefined) break
    followed.add(cursor)
  }
  return { entries: [...kept.entries.values()], cut: kept.cut }
}

class CollectedPages {
  readonly entries = new Map<string, CatalogEntry>()
  /** Why collecting stopped. */
  end: string | undefined
  readonly #kind: ListKind
  readonly #limit: number
  readonly #era: Era
  readonly #schemas = new ClientSchemas()
  /** Names the faults behind the latest page, as text for messages; empty without faults. */
  blame = ''
  #tooDeep = false
  readonly #leftOut = new Told('left out')
  readonly #mended = new Told('mended')
  /** The first key of two different entries. */
  #twice: string | undefined
  /** Size of the received pages in bytes, including white space and text outside of entries. */
  #bytes = 0

  constructor(kind: ListKind, limit: number, era: Era) {
    this.#kind = kind
    this.#limit = limit
    this.#era = era
  }

  get cut(): string | undefined {
    const reasons = [
      ...(this.end === undefined ? [] : [this.end]),
      ...(this.#tooDeep ? [`entries nested deeper than ${MAX_DEPTH} levels are left out`] : []),
      ...this.#leftOut.reasons,
      ...this.#mended.reasons,
      ...(this.#twice === undefined
        ? []
        : [`${shown(this.#twice)} is the name of two entries: the last one counts`]),
    ]
    return reasons.length === 0 ? undefined : reasons.join('; ')
  }

  /**
   * Takes a page, over several turns of the event loop if long. Resolves to the cursor of the next page. Rejects with a
   * `GatewayError` for an answer without a list.
   */
  async take({ text, value }: Awaited<ReturnType<Ask>>): Promise<string | undefined> {
    const next = isObject(value.result) ? value.result.nextCursor : undefined
    this.blame = isObject(value.result) ? injectedBy(makersOf(value.result)) : ''
    const list = during('catalog', () => locate(text, ['result', this.#kind]))
    let others = text.length
    const isList = list !== undefined && text[list.start] === '['
    // An error answer is fine: a server may declare a capability without the method.
    if (!isList && value.error === undefined) {
      const error = gatewayError('bad_reply', `${kinds[this.#kind].method} returned no list`, { sent: true })
      throw isObject(value.result) ? about(value.result, error) : error
    }
    if (isList) {
      const turns = new TurnBudget()
      for (const { start, end } of elements(text, list.start)) {
        turns.begin()
        const { left } = this.#schemas
        others -= end - start
        during('catalog', () => this.#add(text.slice(start, end)))
        if (this.end !== undefined) return undefined
        if (turns.spent(end - start) || this.#schemas.left < left) await nextTurn()
      }
    }
    this.#bytes += others
    if (this.#bytes > this.#limit) return this.stop(`more than ${this.#limit} bytes`)
    return typeof next === 'string' ? next : undefined
  }

  stop(reason: string): undefined {
    this.end = reason
  }

  #add(slice: string): void {
    // Copies by way of bytes, because a slice would keep the whole page in memory.
    const bytes = Buffer.from(slice)
    this.#bytes += bytes.length
    if (this.#bytes > this.#limit) return this.stop(`more than ${this.#limit} bytes`)
    const text = bytes.toString()
    if (isDeeperThan(MAX_DEPTH, text)) return void (this.#tooDeep = true)
    const value = parseExactly(text)
    const shaped = wellFormed(this.#kind, text, value, this.#schemas, this.#era)
    const named = isObject(value) ? value[kinds[this.#kind].key] : undefined
    if (typeof shaped === 'string') return this.#leftOut.add(named, shaped)
    if (shaped.mended !== undefined) this.#mended.add(named, shaped.mended)
    const key = shaped.value[kinds[this.#kind].key] as string
    const known = this.entries.get(key)
    const differs = known !== undefined && known.text !== shaped.text
    if (differs) this.#twice ??= key
    if (known === undefined && this.entries.size === MAX_ENTRIES)
      return this.stop(`more than ${MAX_ENTRIES} entries`)
    this.entries.set(key, new Listed(key, shaped.text, shaped.value, differs || known?.isAmbiguous === true))
  }
}

/** Counts malformed entries with the same treatment, and keeps the problem of the first entry. */
class Told {
  readonly #done: string
  #count = 0
  #first = ''

  constructor(done: string) {
    this.#done = done
  }

  get reasons(): string[] {
    const count = `${this.#count} malformed ${this.#count === 1 ? 'entry is' : 'entries are'}`
    return this.#count === 0 ? [] : [`${count} ${this.#done}: ${this.#first}`]
  }

  add(key: unknown, wrong: string): void {
    if (this.#count++ === 0) this.#first = typeof key === 'string' ? `of ${shown(key)}, ${wrong}` : wrong
  }
}

/** Quotes a server's own words, cut to 100 characters. */
const shown = (key: string): string => JSON.stringify(key.slice(0, 100))

/** Parses an entry of a list; undefined without a name or URI. */
export function entryOf(kind: ListKind, text: string): CatalogEntry | undefined {
  const value: unknown = parseExactly(text)
  const key = isObject(value) ? value[kinds[kind].key] : undefined
  if (!isObject(value) || typeof key !== 'string') return undefined
  return new Listed(key, text, value)
}

class Listed implements CatalogEntry {
  readonly key: string
  readonly text: string
  readonly fingerprint: string
  readonly hasUi: boolean
  readonly isWider: boolean
  readonly isAmbiguous: boolean

  constructor(
    key: string,
    text: string,
    { _meta, outputSchema }: CatalogEntry['value'],
    isAmbiguous = false,
  ) {
    this.key = key
    this.text = text
    this.fingerprint = fingerprint(text)
    this.hasUi = isObject(_meta) && uiPaths.some(([, key]) => key in _meta)
    this.isWider = isWider(outputSchema)
    this.isAmbiguous = isAmbiguous
  }

  get value(): CatalogEntry['value'] {
    return parseExactly(this.text) as CatalogEntry['value']
  }
}

function fingerprint(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

/** Returns the lists with different entries or order. */
export function changedKinds(before: Catalog, after: Catalog): ListKind[] {
  const print = (catalog: Catalog, kind: ListKind) =>
    catalog.lists[kind].map((entry) => entry.key + entry.fingerprint).join()
  return listKinds.filter((kind) => print(before, kind) !== print(after, kind))
}
