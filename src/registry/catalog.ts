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

/** One tool, prompt, resource or template: its exact JSON text, under its server's own name. */
export interface CatalogEntry {
  /** Name, URI or URI template. */
  readonly key: string
  readonly text: string
  /** Read from the text each time: kept, it takes many times the memory of it, and of most entries nobody asks for it. */
  readonly value: Readonly<Record<string, unknown>>
  /** SHA-256 of the text, first 16 hex digits: changes when anything in the entry does. */
  readonly fingerprint: string
  /** Whether it names a user interface by its URI. */
  readonly hasUi: boolean
  /** Whether it is a tool whose results may be more than objects. */
  readonly isWider: boolean
  /** Whether its list has another entry of this key, which differs: nobody knows which of the two a call means. */
  readonly isAmbiguous: boolean
}

/** The lists of a server, as the server offered them when it was asked last. */
export interface Catalog {
  /** Milliseconds since the Unix epoch; undefined when it was never asked with success. */
  readonly fetchedAt: number | undefined
  readonly lists: Readonly<Record<ListKind, readonly CatalogEntry[]>>
  /** Why a list is not all that the server offers; of those that are, nothing. */
  readonly cut?: Readonly<Partial<Record<ListKind, string>>>
}

export const emptyCatalog: Catalog = {
  fetchedAt: undefined,
  lists: { tools: [], prompts: [], resources: [], resourceTemplates: [] },
}

/** Most pages of a list that are fetched, and most entries kept of it. */
const MAX_PAGES = 1_000
const MAX_ENTRIES = 10_000

/** Longest cursor that is followed, in characters. */
const MAX_CURSOR = 8_192

/** Deepest nesting of an entry: what walks through it later may go down by one call a level. */
const MAX_DEPTH = 256

/** Sends one list request and gives the text of its whole response. Rejects with a `GatewayError`. */
export type Ask = (
  method: string,
  params: { cursor?: string },
) => Promise<{
  text: string
  value: Readonly<Record<string, unknown>>
}>

/** The result of fetching a list. */
export interface Fetched {
  readonly entries: readonly CatalogEntry[]
  /** Why these are not all of them. */
  readonly cut: string | undefined
}

/**
 * Fetches the pages of one list, up to `limit` bytes of text: what is beyond it, or any other limit, is left out, and the
 * rest serves. `era`: in which the server is asked. Rejects with a `GatewayError`.
 */
export async function fetchList(kind: ListKind, ask: Ask, limit: number, era: Era): Promise<Fetched> {
  const kept = new CollectedPages(kind, limit, era)
  const followed = new Set<string>()
  let cursor: string | undefined
  for (;;) {
    // Not the response itself: it would stay for as long as the next page takes.
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

/** The part of a list that is kept while its pages come. */
class CollectedPages {
  readonly entries = new Map<string, CatalogEntry>()
  /** Why no more is kept. */
  end: string | undefined
  readonly #kind: ListKind
  readonly #limit: number
  readonly #era: Era
  readonly #schemas = new ClientSchemas()
  /** Names the faults that made the latest page, in the words of messages; empty for none. */
  blame = ''
  #tooDeep = false
  readonly #leftOut = new Told('left out')
  readonly #mended = new Told('mended')
  /** The first key that two entries have that differ. */
  #twice: string | undefined
  /** The size of the pages as they came, in bytes: white space and everything that is no entry count as well. */
  #bytes = 0

  constructor(kind: ListKind, limit: number, era: Era) {
    this.#kind = kind
    this.#limit = limit
    this.#era = era
  }

  /** Why the list is not all that the server offers. */
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
   * Takes one page, over several turns of the event loop when it is a long one; gives the cursor of the next one. Rejects with a
   * `GatewayError` for an answer that is no list.
   */
  async take({ text, value }: Awaited<ReturnType<Ask>>): Promise<string | undefined> {
    const next = isObject(value.result) ? value.result.nextCursor : undefined
    this.blame = isObject(value.result) ? injectedBy(makersOf(value.result)) : ''
    const list = during('catalog', () => locate(text, ['result', this.#kind]))
    let others = text.length
    const isList = list !== undefined && text[list.start] === '['
    // A server may offer what it has no method for.
    if (!isList && value.error === undefined) {
      const error = gatewayError('bad_reply', `${kinds[this.#kind].method} brought no list`, { sent: true })
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
    // By way of bytes, as a slice would hold on to the whole page.
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

/** Malformed entries to which the same was done: how many, and what is wrong with the first one. */
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

/** A server's own words, as they are quoted. */
const shown = (key: string): string => JSON.stringify(key.slice(0, 100))

/** The entry of a list that a JSON text is; undefined when it has no name. */
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

/** The lists that differ between two catalogs, order included. */
export function changedKinds(before: Catalog, after: Catalog): ListKind[] {
  const print = (catalog: Catalog, kind: ListKind) =>
    catalog.lists[kind].map((entry) => entry.key + entry.fingerprint).join()
  return listKinds.filter((kind) => print(before, kind) !== print(after, kind))
}
