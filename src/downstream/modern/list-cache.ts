import type { Clock, Millis } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import type { Response } from '../respond.ts'

/** Longest time that a server's word is taken for, in milliseconds. */
const MAX_TTL_MS: Millis = 5 * 60_000

/** Most lists that are kept; the oldest makes room. */
const MAX_LISTS = 1_000

/** Most that all of them may have, with their keys, in characters: 64 MiB where each takes two bytes. */
const MAX_CHARACTERS = 32 * 1024 * 1024

/** Longest key that a list is kept under, in characters: it holds the cursor, which may be as long as a body. */
export const LONGEST_KEY = 8 * 1024

/** Methods whose answers a server may allow to be kept. */
const lists = new Set(['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'])

/** Whether answers to a method may be kept at all. */
export function isList(method: string): boolean {
  return lists.has(method)
}

interface Kept {
  readonly response: Pick<Response, 'text' | 'status'>
  readonly until: Millis
  /** How often its server had changed when it was asked for. */
  readonly changes: number
}

interface Fetching {
  readonly response: Promise<Response>
  readonly changes: number
}

/** Whose list it is that somebody asks for, and which one. */
export interface ListKey {
  /** Undefined for that of all servers. */
  readonly server: string | undefined
  /** The request, and all else that the answer depends on besides the caller. */
  readonly key: string
}

/**
 * Lists for as long as their servers say that they hold (`ttlMs`), for whom they say (`cacheScope`): for all,
 * or for callers with the same credentials; but no longer than until their server changes. Whoever asks while a list is
 * being fetched waits for that one.
 */
export class ListCache {
  readonly #clock: Clock
  /** The oldest first. */
  readonly #kept = new Map<string, Kept>()
  #characters = 0
  readonly #fetching = new Map<string, Fetching>()
  /** How often each server has changed, and how often all of them have. */
  readonly #changes = new Map<string | undefined, number>()
  #allChanges = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * The list behind `key` as `caller` may see it; from `fetch` when none is kept. Ids are the fetcher's. Who `hurries`
   * fetches for itself: its deadline must not be that of others, nor theirs be its own.
   */
  get(
    { server, key }: ListKey,
    caller: string,
    fetch: () => Promise<Response>,
    hurries = false,
  ): Promise<Response> {
    const own = `${caller}\n${key}`
    const changes = this.#changesOf(server)
    const kept = this.#find(own, changes) ?? this.#find(key, changes)
    if (kept !== undefined) return Promise.resolve(this.#aged(kept))
    const fetched = () => fetch().then((response) => this.#keep(key, own, response, { server, changes }))
    if (hurries) return fetched()
    const underWay = this.#fetching.get(own)
    if (underWay?.changes === changes) return underWay.response
    const fetching = { changes, response: fetched().finally(over) }
    this.#fetching.set(own, fetching)
    const fetchings = this.#fetching
    function over(): void {
      if (fetchings.get(own) === fetching) fetchings.delete(own)
    }
    return fetching.response
  }

  /** What a server offers has changed: nothing that was asked of it before holds. Undefined: that of all servers. */
  forget(server: string | undefined): void {
    if (server === undefined) {
      this.#allChanges++
      this.#kept.clear()
      this.#characters = 0
      return
    }
    for (const changed of [server, undefined])
      this.#changes.set(changed, (this.#changes.get(changed) ?? 0) + 1)
  }

  #changesOf(server: string | undefined): number {
    return this.#allChanges + (this.#changes.get(server) ?? 0)
  }

  #find(key: string, changes: number): Kept | undefined {
    const kept = this.#kept.get(key)
    if (kept === undefined || (kept.until > this.#clock.now() && kept.changes === changes)) return kept
    this.#drop(key)
    return undefined
  }

  #add(key: string, kept: Kept): void {
    this.#drop(key)
    this.#kept.set(key, kept)
    this.#characters += sizeOf(key, kept)
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_LISTS && this.#characters <= MAX_CHARACTERS) break
      this.#drop(oldest)
    }
  }

  #drop(key: string): void {
    const kept = this.#kept.get(key)
    if (kept === undefined) return
    this.#kept.delete(key)
    this.#characters -= sizeOf(key, kept)
  }

  #keep(
    key: string,
    own: string,
    response: Response,
    { server, changes }: { readonly server: string | undefined; readonly changes: number },
  ): Response {
    const value = response.value ?? parseJson(response.text)
    const result = isObject(value) ? value.result : undefined
    if (!isObject(result) || typeof result.ttlMs !== 'number' || result.ttlMs <= 0) return response
    if (result.resultType !== undefined && result.resultType !== 'complete') return response
    // One that was under way when its server changed may be of before.
    if (changes === this.#changesOf(server)) {
      const until = this.#clock.now() + Math.min(result.ttlMs, MAX_TTL_MS)
      const { text, status } = response
      this.#add(result.cacheScope === 'public' ? key : own, { response: { text, status }, until, changes })
    }
    // A server may say ten years; nobody should believe it.
    return result.ttlMs <= MAX_TTL_MS
      ? response
      : { text: replaceAt(response.text, ['result', 'ttlMs'], MAX_TTL_MS), status: response.status }
  }

  /** The answer with what is left of its time. */
  #aged({ response: { text, status }, until }: Kept): Response {
    const left = Math.max(0, Math.floor(until - this.#clock.now()))
    return { text: replaceAt(text, ['result', 'ttlMs'], left), status }
  }
}

/** In characters. */
function sizeOf(key: string, { response }: Kept): number {
  return key.length + response.text.length
}
