import { LRUCache } from 'lru-cache'
import { type Message, newRecord } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Live } from '../../mesh/live.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { askedLimitMs } from '../../policies/deadline.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { isObject, paramsOf, parseJson, requestText } from '../../protocol/jsonrpc.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  PROTOCOL_VERSION_KEY,
} from '../../protocol/versions.ts'
import { withEntry } from '../../protocol/meta.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { McpRequest, InboundRequest } from '../endpoint.ts'
import type { Guards } from '../limits/limits.ts'
import type { Response } from '../respond.ts'
import { senderOf } from '../limits/tarpit.ts'
import type { Tenancy } from '../../access/caller.ts'
import { mirroredHeaders } from './envelope.ts'
import { type ModernCall, isMoreVerbose } from './call.ts'
import type { PooledCaller } from './pool.ts'

/** Sends requests of modern clients to their servers, and the answers back to the waiting calls. */
export class Relay {
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #lists: ListCache
  readonly #guards: Pick<Guards, 'defect' | 'tarpit'>
  readonly #running = new Set<ModernCall>()
  /** The signal that cancels shared requests when the gateway closes. */
  readonly #closing = new Cancellation()

  constructor(live: Live<GatewayGeneration>, clock: Clock, guards: Pick<Guards, 'defect' | 'tarpit'>) {
    this.#guards = guards
    this.#live = live
    this.#clock = clock
    this.#lists = new ListCache(clock)
  }

  /** Sends the request with an id made by Breakwater, because several clients share the upstream session. */
  run(
    { endpoint, headers }: InboundRequest,
    modernCall: ModernCall,
    tenancy: Tenancy,
    message: Message,
  ): Promise<void> {
    const { caller, signal } = modernCall
    const { logLevel } = modernCall.envelope
    const id = caller.mintId()
    const record = newRecord(this.#clock.now())
    record.requestId = modernCall.envelope.id
    const mirrored = mirroredHeaders(headers)
    const own = renamed(message, id)
    const lease = this.#live.enter()
    caller.calls++
    this.#running.add(modernCall)
    const plain: McpRequest = {
      id,
      message: own,
      headers,
      caller,
      tenancy,
      channelFor: () => modernCall.channel(record, this.#clock),
      signal,
      record,
    }
    const request = mirrored === undefined ? plain : { ...plain, mirrored }
    const done = (response: Response) => {
      caller.calls--
      if (response.value !== undefined)
        caller.answered(endpoint.server, modernCall.envelope.method, response.value)
      this.#running.delete(modernCall)
      lease.release()
      if (response.retryAfterMs !== undefined) {
        const sender = senderOf(modernCall.client, tenancy)
        const pause = this.#guards.tarpit.hold(sender, record.startedAt, response.retryAfterMs)
        if (pause !== undefined) return pause.then(() => modernCall.end(response, record, id))
      }
      if (!modernCall.takesLong(response)) return void modernCall.end(response, record, id)
      return ownTurn(modernCall.client).then(() =>
        during('reply', () => modernCall.end(response, record, id)),
      )
    }
    // Answers after an internal error too, even while the call waits for its client.
    const broke = (cause: unknown) => done({ text: this.#guards.defect(id, cause), status: 200 })
    try {
      const answer =
        logLevel === undefined
          ? this.#ask(lease.generation, endpoint, request)
          : this.#raiseLevel(request, endpoint, logLevel).then(() =>
              this.#ask(lease.generation, endpoint, request),
            )
      return answer.then(done, broke)
    } catch (cause) {
      return broke(cause) ?? Promise.resolve()
    }
  }

  /**
   * Sends a request. Fetches a list once for all callers that may share it; no caller can cancel the fetch of another.
   */
  #ask(
    generation: GatewayGeneration,
    endpoint: InboundRequest['endpoint'],
    request: McpRequest,
  ): Promise<Response> {
    const { value } = request.message
    const method = value.method as string
    if (!isList(method)) return endpoint.request(generation, request)
    // Skips the cache while faults are armed for the list. A cached list would hide the faults, and a faulted list must
    // not be cached.
    if (isFaulted(generation, endpoint.server, method)) return endpoint.request(generation, request)
    if (request.message.text.length > LONGEST_REQUEST) return endpoint.request(generation, request)
    const key = JSON.stringify([generation.hash, endpoint.server, method, ...askedFor(paramsOf(value))])
    if (key.length > LONGEST_KEY) return endpoint.request(generation, request)
    const hurries = askedLimitMs({ inbound: request.headers, message: request.message }) !== undefined
    const asked = hurries ? request : { ...request, signal: this.#closing }
    const list = { server: endpoint.server, key }
    return this.#lists.get(list, request.caller.id, () => endpoint.request(generation, asked), hurries)
  }

  /** Drops the cached lists of a server, or of all servers when undefined, because the lists may have changed. */
  forgetLists(server: string | undefined): void {
    this.#lists.forget(server)
  }

  /** Ends all calls with an error, because the gateway is closing. */
  close(): void {
    const why = gatewayError('shutting_down', 'the gateway is being stopped')
    for (const { signal } of this.#running) signal.abort(why)
    this.#closing.abort(why)
  }

  /**
   * Sets a legacy server's log level if `level` is more verbose. An upstream session has one level, the most verbose
   * that any client requested.
   */
  async #raiseLevel(request: McpRequest, endpoint: InboundRequest['endpoint'], level: string): Promise<void> {
    const caller = request.caller as PooledCaller
    const key = endpoint.server ?? ''
    if (!isMoreVerbose(level, caller.levels.get(key))) return
    caller.levels.set(key, level)
    const id = caller.mintId()
    const value = { jsonrpc: '2.0', id, method: 'logging/setLevel', params: { level } }
    const message = { text: requestText(id, value.method, value.params), value }
    await endpoint.request(this.#live.current, {
      ...request,
      id,
      message,
      record: newRecord(this.#clock.now()),
    })
    // Forgets the level when the client disconnected: the server may not have set it. The next request then sets it
    // again.
    if (request.signal.aborted && caller.levels.get(key) === level) caller.levels.delete(key)
  }
}

/** Returns the request with another id, which is also its progress token. */
function renamed({ text, value }: Message, id: string): Message {
  const params = paramsOf(value)
  const meta = params._meta
  const named = replaceAt(text, ['id'], id)
  if (!isObject(meta) || meta.progressToken === undefined)
    return { text: named, value: withEntry(value, 'id', id) }
  return {
    text: replaceAt(named, ['params', '_meta', 'progressToken'], id),
    value: { ...value, id, params: { ...params, _meta: { ...meta, progressToken: id } } },
  }
}

/** Longest accepted `ttlMs` of a server, in milliseconds. */
const MAX_TTL_MS: Millis = 5 * 60_000

/** Most cached lists; the oldest is dropped for a new list. */
const MAX_LISTS = 1_000

/** Most characters of all cached lists and keys: 64 MiB at two bytes each. */
const MAX_CHARACTERS = 32 * 1024 * 1024

/** Longest key of a cached list, in characters. The key contains the params, which may be as long as a body. */
const LONGEST_KEY = 8 * 1024

/** Longest list request that may share an answer, in characters, including the client's description. */
const LONGEST_REQUEST = 64 * 1024

/** Keys of `_meta` that do not affect a list: they describe the caller and its context. */
const aside: ReadonlySet<string> = new Set([
  PROTOCOL_VERSION_KEY,
  CLIENT_INFO_KEY,
  CLIENT_CAPABILITIES_KEY,
  LOG_LEVEL_KEY,
  'progressToken',
  'traceparent',
  'tracestate',
  'baggage',
])

/** Returns the params that may affect a server's answer, including params unknown to the protocol. */
function askedFor({ _meta: meta, ...others }: Readonly<Record<string, unknown>>): unknown[] {
  const known = (key: string) => aside.has(key) || key.startsWith('dev.breakwater/')
  return [others, isObject(meta) ? Object.entries(meta).filter(([key]) => !known(key)) : meta]
}

/** Methods whose answers a server may allow the gateway to cache. */
const lists = new Set(['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'])

function isList(method: string): boolean {
  return lists.has(method)
}

/** True when client-side faults are armed for a list of the server, or of any server when undefined. */
function isFaulted({ servers, clientFaults }: GatewayGeneration, server: string | undefined, method: string) {
  const names = server === undefined ? [...servers.keys()] : [server]
  return names.some((name) => clientFaults(name, method) !== undefined)
}

interface KeptAnswer {
  readonly response: Pick<Response, 'text' | 'status'>
  readonly until: Millis
  /** The value of the server's change counter at the time of the request. */
  readonly changes: number
}

interface Fetching {
  readonly response: Promise<Response>
  readonly changes: number
}

interface ListKey {
  /** The server of the list; undefined for the list of all servers. */
  readonly server: string | undefined
  /** A text of everything that affects the answer, except the caller. */
  readonly key: string
}

/**
 * Caches lists as long as their servers allow (`ttlMs`), for all callers or for callers with the same credentials
 * (`cacheScope`). Drops a list when its server changes. A request during a fetch waits for the fetch in progress.
 */
export class ListCache {
  readonly #clock: Clock
  readonly #kept = new LRUCache<string, KeptAnswer>({
    max: MAX_LISTS,
    maxSize: MAX_CHARACTERS,
    sizeCalculation: ({ response }, key) => key.length + response.text.length,
  })
  readonly #fetching = new Map<string, Fetching>()
  /** The number of changes of each server; under `undefined`, of all servers together. */
  readonly #changes = new Map<string | undefined, number>()
  #allChanges = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Returns the cached list of `key` for `caller`; calls `fetch` when none is cached. The answer has the request id of
   * the caller that fetched it. A caller that `hurries` fetches separately, so callers do not share deadlines.
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

  /** Invalidates all earlier answers of a server, or of all servers when undefined. */
  forget(server: string | undefined): void {
    if (server === undefined) {
      this.#allChanges++
      this.#kept.clear()
      return
    }
    for (const changed of [server, undefined])
      this.#changes.set(changed, (this.#changes.get(changed) ?? 0) + 1)
  }

  #changesOf(server: string | undefined): number {
    return this.#allChanges + (this.#changes.get(server) ?? 0)
  }

  #find(key: string, changes: number): KeptAnswer | undefined {
    // Uses `peek`, so that the cache evicts the list that was fetched first.
    const kept = this.#kept.peek(key)
    if (kept === undefined || (kept.until > this.#clock.now() && kept.changes === changes)) return kept
    this.#kept.delete(key)
    return undefined
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
    // Does not cache the answer if the server changed during the fetch: it may be the old list.
    if (changes === this.#changesOf(server)) {
      const until = this.#clock.now() + Math.min(result.ttlMs, MAX_TTL_MS)
      const { text, status } = response
      this.#kept.set(result.cacheScope === 'public' ? key : own, {
        response: { text, status },
        until,
        changes,
      })
    }
    // Lowers a longer `ttlMs` to the limit.
    return result.ttlMs <= MAX_TTL_MS
      ? response
      : { text: replaceAt(response.text, ['result', 'ttlMs'], MAX_TTL_MS), status: response.status }
  }

  /** Returns the answer with its remaining `ttlMs`. */
  #aged({ response: { text, status }, until }: KeptAnswer): Response {
    const left = Math.max(0, Math.floor(until - this.#clock.now()))
    return { text: replaceAt(text, ['result', 'ttlMs'], left), status }
  }
}
