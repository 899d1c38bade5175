import type { Partial } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { at } from '../protocol/jsonrpc.ts'
import { type Edit, locate, splice } from '../protocol/json-span.ts'
import { FULL_NAME_KEY, listedWithMeta, PARTIAL_KEY } from '../protocol/meta.ts'
import type { Era } from '../protocol/versions.ts'
import { legacyTool } from '../protocol/output-schema.ts'
import type { CatalogEntry } from './catalog.ts'
import { kinds, type ListKind, uiPaths } from '../protocol/lists.ts'
import type { KnownServer } from './known-server.ts'
import type { Names } from './names.ts'

/** Entries on one page of an aggregated list. */
const PAGE = 500

/** The first entry of a page: index in a server's list, from 0. */
interface Position {
  readonly server: string
  readonly index: number
}

/** Waits until every server has been asked once in an era, for `limitMs` at most, or until `signal` aborts. */
export function settled(
  servers: Iterable<KnownServer>,
  clock: Clock,
  limitMs: Millis,
  { signal, era = 'modern' }: { readonly signal?: Signal; readonly era?: Era } = {},
): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      cancel()
      signal?.removeEventListener('abort', done)
      resolve()
    }
    const cancel = clock.after(limitMs, done)
    if (signal?.aborted) return done()
    signal?.addEventListener('abort', done)
    void Promise.all([...servers].map((server) => server.settledFor(era))).then(done)
  })
}

/** Makes lists wait for servers, once per server: a hanging server delays the first list, but not later lists. */
export class ListWaits {
  readonly #clock: Clock
  /** Start of the wait for a server not yet asked in an era, on the monotonic clock. */
  readonly #since = { legacy: new WeakMap<KnownServer, Millis>(), modern: new WeakMap<KnownServer, Millis>() }

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Waits like `settled`, but skips servers after `perServerMs` of waiting, counted over all lists. */
  settled(
    servers: Iterable<KnownServer>,
    limitMs: Millis,
    perServerMs: Millis,
    { signal, era }: { readonly signal: Signal; readonly era: Era },
  ): Promise<void> {
    const since = this.#since[era]
    const now = this.#clock.now()
    let longestMs = 0
    const awaited = [...servers].filter((server) => {
      const leftMs = (since.get(server) ?? now) + perServerMs - now
      if (!since.has(server)) {
        since.set(server, now)
        void server.settledFor(era).then(() => since.delete(server))
      }
      longestMs = Math.max(longestMs, leftMs)
      return leftMs > 0
    })
    return settled(awaited, this.#clock, Math.min(limitMs, longestMs), { signal, era })
  }
}

/** An entry as shown to readers, before its name is exposed. */
export type ShownEntry = Pick<CatalogEntry, 'key' | 'text' | 'value' | 'hasUi'>

/** The entries of a single server on a page of an aggregated list. */
export interface ListSlice {
  readonly server: string
  /** The entries with the server's own names. */
  readonly entries: readonly ShownEntry[]
  /** Cursor of the slice's first entry. */
  readonly cursor: string
  /** Cursor of the next page, if within this server's list. */
  readonly nextCursor: string | undefined
  /** How long the list stays valid, in milliseconds, if known. */
  readonly ttlMs?: number
}

/**
 * Returns a page of an aggregated list in slices, still with the servers' own names. Servers are in the order of the
 * config, entries in the order of their server, every byte as the server wrote it. `cursor` undefined: the first page.
 * Undefined for a foreign cursor, or a cursor of a removed server. `legacy`: translates entries of modern servers for
 * legacy readers.
 */
export function listSlices(
  kind: ListKind,
  cursor: string | undefined,
  servers: ReadonlyMap<string, KnownServer>,
  names: Names,
  { legacy = false }: { legacy?: boolean } = {},
): ListSlice[] | undefined {
  const order = [...servers.values()]
  const start = cursor === undefined ? { server: order[0]?.name ?? '', index: 0 } : readCursor(cursor)
  const from = order.findIndex((server) => server.name === start?.server)
  if (start === undefined || (from === -1 && cursor !== undefined)) return undefined

  const slices: ListSlice[] = []
  let room = PAGE
  for (const server of from === -1 ? [] : order.slice(from)) {
    const entries = server
      .entries(kind, legacy ? 'legacy' : 'modern')
      .filter(({ key }) => names.faultOf(kind, server.name, key) === undefined)
      .filter(({ key }) => kind !== 'tools' || !server.isShadowed(key))
    const first = server.name === start.server ? start.index : 0
    const shown = entries.slice(first, first + room)
    const isCut = entries.length - first > room
    const nextCursor = isCut ? writeCursor({ server: server.name, index: first + room }) : undefined
    slices.push({
      server: server.name,
      cursor: writeCursor({ server: server.name, index: first }),
      entries: legacy ? shown.map(inLegacyWords) : shown,
      nextCursor,
    })
    if (isCut) break
    room -= shown.length
  }
  return slices
}

function inLegacyWords(entry: CatalogEntry): ShownEntry {
  if (!entry.isWider) return entry
  const { key, text, value, hasUi } = entry
  return { key, text: legacyTool(text, value), value, hasUi }
}

/** Returns the page of these slices as the JSON text of a result, with exposed names. */
export function pageOf(
  kind: ListKind,
  slices: readonly ListSlice[],
  servers: ReadonlyMap<string, KnownServer>,
  names: Names,
): string {
  const page = slices.flatMap(({ server, entries }) =>
    entries.map((entry) => expose(kind, server, entry, names)),
  )
  const next = slices.find(({ nextCursor }) => nextCursor !== undefined)?.nextCursor
  const ttlMs = slices.find((slice) => slice.ttlMs !== undefined)?.ttlMs
  const members = [`${JSON.stringify(kind)}:[${page.join()}]`]
  if (next !== undefined) members.push(`"nextCursor":${JSON.stringify(next)}`)
  if (ttlMs !== undefined) members.push(`"ttlMs":${ttlMs}`)
  const partial = missing(kind, [...servers.values()])
  if (partial !== undefined) members.push(`"_meta":${JSON.stringify({ [PARTIAL_KEY]: partial })}`)
  return `{${members.join()}}`
}

/** Returns an entry's text with its name on the aggregated endpoint. */
function expose(kind: ListKind, server: string, entry: ShownEntry, names: Names): string {
  if (kind === 'tools') return exposeTool(server, entry, names)
  const { key, text } = entry
  const isUri = kind === 'resources' || kind === 'resourceTemplates'
  const exposed = isUri ? names.exposeUri(server, key) : names.expose(server, key)
  return splice(text, [edit(text, [kinds[kind].key], exposed)])
}

/** Returns a tool's text with its exposed name. Reads `value` only for tools with a UI, because reading parses. */
function exposeTool(server: string, entry: ShownEntry, names: Names): string {
  const { key, text: own, hasUi } = entry
  const exposed = names.exposeTool(server, key)
  const full = names.expose(server, key)
  const text = exposed === full ? own : listedWithMeta(own, FULL_NAME_KEY, full)
  return splice(text, [
    edit(text, [kinds.tools.key], exposed),
    ...(hasUi ? uiEdits(server, text, entry.value, names) : []),
  ])
}

function uiEdits(server: string, text: string, value: CatalogEntry['value'], names: Names): Edit[] {
  return uiPaths.flatMap((path) => {
    const uri = at(value, path)
    return typeof uri === 'string' ? [edit(text, path, names.exposeUri(server, uri))] : []
  })
}

function edit(text: string, path: readonly string[], value: string): Edit {
  const { start, end } = locate(text, path) ?? { start: 0, end: 0 }
  return { start, end, with: JSON.stringify(value) }
}

/** Returns which servers are missing from a list, stale or incomplete; undefined for a complete list. */
function missing(kind: ListKind, servers: readonly KnownServer[]): Omit<Partial, 'notice'> | undefined {
  const down = servers.filter((server) => server.state !== 'up')
  const cut = servers.flatMap(({ name, catalog }) =>
    catalog.cut?.[kind] === undefined ? [] : `${name} (${catalog.cut[kind]})`,
  )
  if (down.length === 0 && cut.length === 0) return undefined
  const lacking = down.filter((server) => server.entries(kind).length === 0).map((server) => server.name)
  const stale = down.map((server) => server.name).filter((name) => !lacking.includes(name))
  const reasons = [
    ...(lacking.length > 0 ? [`not available now: ${lacking.join(', ')}`] : []),
    ...(stale.length > 0 ? [`down, shown as last known: ${stale.join(', ')}`] : []),
    ...(cut.length > 0 ? [`different from the server's own list: ${cut.join(', ')}`] : []),
  ]
  const reason = reasons.join('; ')
  if (lacking.length === 0) return { source: down.length > 0 ? 'stale' : 'detected', reason }
  return { source: 'missing_servers', reason, missing: lacking }
}

function writeCursor({ server, index }: Position): string {
  return Buffer.from(JSON.stringify([server, index])).toString('base64url')
}

function readCursor(cursor: string): Position | undefined {
  try {
    const [server, index] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[]
    const valid = typeof server === 'string' && Number.isSafeInteger(index) && (index as number) >= 0
    return valid ? { server, index: index as number } : undefined
  } catch {
    return undefined
  }
}
