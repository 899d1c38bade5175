import type { Clock, Millis } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import type { Response } from '../respond.ts'

/** Longest time that a server's word is taken for, in milliseconds. */
const MAX_TTL_MS: Millis = 5 * 60_000

/** Most lists that are kept; the oldest makes room. */
const MAX_LISTS = 1_000

/** Methods whose answers a server may allow to be kept. */
const lists = new Set(['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'])

/** Whether answers to a method may be kept at all. */
export function isList(method: string): boolean {
  return lists.has(method)
}

interface Kept {
  readonly response: Response
  readonly until: Millis
}

/**
 * Lists for as long as their servers say that they hold (`ttlMs`), for whom they say (`cacheScope`): for all,
 * or for callers with the same credentials. Whoever asks while a list is being fetched waits for that one.
 */
export class ListCache {
  readonly #clock: Clock
  readonly #kept = new Map<string, Kept>()
  readonly #fetching = new Map<string, Promise<Response>>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * The list behind `key` as `caller` may see it; from `fetch` when none is kept. Ids are the fetcher's. Who `hurries`
   * fetches for itself: its deadline must not be that of others, nor theirs be its own.
   */
  get(key: string, caller: string, fetch: () => Promise<Response>, hurries = false): Promise<Response> {
    const own = `${caller}\n${key}`
    const kept = this.#find(own) ?? this.#find(key)
    if (kept !== undefined) return Promise.resolve(this.#aged(kept))
    if (hurries) return fetch().then((response) => this.#keep(key, own, response))
    let fetching = this.#fetching.get(own)
    if (fetching === undefined) {
      fetching = fetch()
        .then((response) => this.#keep(key, own, response))
        .finally(() => this.#fetching.delete(own))
      this.#fetching.set(own, fetching)
    }
    return fetching
  }

  #find(key: string): Kept | undefined {
    const kept = this.#kept.get(key)
    if (kept === undefined || kept.until > this.#clock.now()) return kept
    this.#kept.delete(key)
    return undefined
  }

  #keep(key: string, own: string, response: Response): Response {
    const value = response.value ?? parseJson(response.text)
    const result = isObject(value) ? value.result : undefined
    if (!isObject(result) || typeof result.ttlMs !== 'number' || result.ttlMs <= 0) return response
    if (result.resultType !== undefined && result.resultType !== 'complete') return response
    const until = this.#clock.now() + Math.min(result.ttlMs, MAX_TTL_MS)
    this.#kept.set(result.cacheScope === 'public' ? key : own, { response, until })
    if (this.#kept.size > MAX_LISTS) this.#kept.delete(this.#kept.keys().next().value as string)
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
