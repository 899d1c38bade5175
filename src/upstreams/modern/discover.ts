import { parseExactly } from '../../protocol/json-parse.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { about } from '../../mesh/injected.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { locate, members } from '../../protocol/json-span.ts'
import { MODERN_VERSION, SERVER_INFO_KEY } from '../../protocol/versions.ts'
import { rawAt } from '../../protocol/renumber.ts'
import { orAborted, within } from '../failure.ts'
import { initializeResultOf, refusedBy } from '../own-call.ts'
import { SharedAttempts } from '../shared-attempts.ts'
import type { Conceal } from '../server-words.ts'

/** Shortest and longest lifetime of an answer, in milliseconds. */
const MIN_MS: Millis = 30_000
const MAX_MS: Millis = 3_600_000

/** Asks a server about itself; resolves to its response. Rejects with a `GatewayError`. */
export type AskDiscover = (signal: Signal) => Promise<Message>

export interface DiscoverOptions {
  readonly clock: Clock
  readonly conceal: Conceal
  /** How long the server may take to answer, in milliseconds, independent of the callers that wait. */
  readonly answerMs: Millis
  /** After how long to repeat an unanswered question, in milliseconds; Infinity: never. */
  readonly patienceMs?: Millis
}

/** Asks a modern server about itself, at most once for all simultaneous callers. */
export class Discover {
  readonly #ask: AskDiscover
  readonly #options: DiscoverOptions
  readonly #attempts: SharedAttempts<Message>
  #known: { readonly initializeResult: Message; readonly until: Millis } | undefined

  constructor(ask: AskDiscover, options: DiscoverOptions) {
    this.#ask = ask
    this.#options = options
    this.#attempts = new SharedAttempts(options.clock, (end) => this.#fetch(end), options.patienceMs)
  }

  /**
   * Returns the answer in the form of an `initialize` result, from memory while fresh. Rejects with a `GatewayError`:
   * `upstream_refused` or `bad_reply` when the server does not speak this era.
   */
  initializeResult(signal: Signal): Promise<Message> {
    if (this.#known !== undefined && this.#options.clock.now() < this.#known.until)
      return Promise.resolve(this.#known.initializeResult)
    return orAborted(this.#attempts.join(), signal)
  }

  /** Forgets the answer: the next caller of `initializeResult` asks the server again. */
  forget(): void {
    this.#known = undefined
  }

  /** Cancels a pending question: waiting callers get `reason`. */
  abort(reason: GatewayError): void {
    this.#attempts.abort(reason)
  }

  /** Asks the server now, without the remembered answer. Rejects as `initializeResult` does. */
  renew(signal: Signal): Promise<Message> {
    this.forget()
    return this.initializeResult(signal)
  }

  async #fetch(end: Signal): Promise<Message> {
    const { clock, answerMs, conceal } = this.#options
    const response = await within(answerMs, clock, end, this.#ask)
    const initializeResult = initializeResultFrom(response, conceal)
    const { ttlMs } = response.value.result as { ttlMs?: unknown }
    const ms = typeof ttlMs === 'number' ? Math.min(Math.max(ttlMs, MIN_MS), MAX_MS) : MIN_MS
    this.#known = { initializeResult, until: clock.now() + ms }
    return initializeResult
  }
}

/** Members of a discover result without a place in an `initialize` result. */
const discoverOnly = new Set(['supportedVersions', 'resultType', 'ttlMs', 'cacheScope', '_meta'])

/** Converts a discover response to an `initialize` result; members stay as written. */
function initializeResultFrom({ text, value }: Message, conceal: Conceal): Message {
  const { result, error } = value
  if (isObject(error)) throw refusedBy('server/discover failed', error, conceal)
  const span = locate(text, ['result'])
  if (!isObject(result) || span === undefined)
    throw gatewayError('bad_reply', 'server/discover has no result')
  const { supportedVersions } = result
  if (!Array.isArray(supportedVersions) || !supportedVersions.includes(MODERN_VERSION)) {
    const message = `the server does not speak version ${MODERN_VERSION}`
    throw about(result, gatewayError('upstream_refused', message))
  }
  const kept = members(text, span.start).filter(({ key }) => !discoverOnly.has(key))
  const parts = kept.map(({ keyStart, end }) => text.slice(keyStart, end))
  if (!('capabilities' in result)) parts.unshift('"capabilities":{}')
  if (!('serverInfo' in result)) parts.unshift(`"serverInfo":${serverInfo(text, result)}`)
  const initializeResult = `{"protocolVersion":"${MODERN_VERSION}",${parts.join()}}`
  return initializeResultOf(initializeResult, parseExactly(initializeResult) as Message['value'])
}

function serverInfo(text: string, { _meta }: Message['value']): string {
  const told = isObject(_meta) && isObject(_meta[SERVER_INFO_KEY])
  return told ? rawAt(text, ['result', '_meta', SERVER_INFO_KEY]) : '{"name":"unknown","version":"0"}'
}
