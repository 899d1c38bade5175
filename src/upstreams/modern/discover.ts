import type { Signal } from '../../mesh/cancel.ts'
import type { Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { locate, members } from '../../protocol/json-span.ts'
import { MODERN_VERSION, SERVER_INFO_KEY } from '../../protocol/modern.ts'
import { rawAt } from '../pipe/renumber.ts'
import { orAborted, within } from '../failure.ts'
import { SharedAttempts } from '../shared-attempts.ts'

/** Shortest and longest time for which one answer serves, in milliseconds. */
const MIN_MS: Millis = 30_000
const MAX_MS: Millis = 3_600_000

/** How long the server may take to answer, whoever waits for it, in milliseconds. */
const ANSWER_MS: Millis = 10_000

/** Asks a server what it is; resolves to its response. Rejects with a `GatewayError`. */
export type AskDiscover = (signal: Signal) => Promise<Message>

/** What a server of the modern era says of itself, asked at most once for all who want to know it at once. */
export class Discover {
  readonly #ask: AskDiscover
  readonly #clock: Clock
  readonly #attempts: SharedAttempts<Message>
  #known: { readonly greeting: Message; readonly until: Millis } | undefined

  /** `patienceMs`: after how long it is asked once more beside a question without an answer; Infinity: never. */
  constructor(ask: AskDiscover, clock: Clock, patienceMs?: Millis) {
    this.#ask = ask
    this.#clock = clock
    this.#attempts = new SharedAttempts(clock, (end) => this.#fetch(end), patienceMs)
  }

  /**
   * The answer in the form of an `initialize` result, from memory while it is fresh. Rejects with a
   * `GatewayError`: `upstream_refused` or `bad_reply` when the server does not speak this era.
   */
  greeting(signal: Signal): Promise<Message> {
    if (this.#known !== undefined && this.#clock.now() < this.#known.until)
      return Promise.resolve(this.#known.greeting)
    return orAborted(this.#attempts.join(), signal)
  }

  /** The server is asked anew next time. */
  forget(): void {
    this.#known = undefined
  }

  /** Asks the server now, whatever is remembered. Rejects as `greeting` does. */
  renew(signal: Signal): Promise<Message> {
    this.forget()
    return this.greeting(signal)
  }

  async #fetch(end: Signal): Promise<Message> {
    const response = await within(ANSWER_MS, this.#clock, end, this.#ask)
    const greeting = greetingOf(response)
    const { ttlMs } = response.value.result as { ttlMs?: unknown }
    const ms = typeof ttlMs === 'number' ? Math.min(Math.max(ttlMs, MIN_MS), MAX_MS) : MIN_MS
    this.#known = { greeting, until: this.#clock.now() + ms }
    return greeting
  }
}

/** Members of a discover result that an `initialize` result does not have. */
const discoverOnly = new Set(['supportedVersions', 'resultType', 'ttlMs', 'cacheScope', '_meta'])

/** A discover response as an `initialize` result, each member as the server wrote it. */
function greetingOf({ text, value }: Message): Message {
  const { result, error } = value
  if (isObject(error)) {
    throw gatewayError('upstream_refused', `server/discover failed: ${String(error.message).slice(0, 200)}`)
  }
  const span = locate(text, ['result'])
  if (!isObject(result) || span === undefined)
    throw gatewayError('bad_reply', 'server/discover has no result')
  const { supportedVersions } = result
  if (!Array.isArray(supportedVersions) || !supportedVersions.includes(MODERN_VERSION)) {
    throw gatewayError('upstream_refused', `the server does not speak version ${MODERN_VERSION}`)
  }
  const kept = [...members(text, span.start)].filter(({ key }) => !discoverOnly.has(key))
  const parts = kept.map(({ keyStart, end }) => text.slice(keyStart, end))
  if (!('capabilities' in result)) parts.unshift('"capabilities":{}')
  if (!('serverInfo' in result)) parts.unshift(`"serverInfo":${serverInfo(text, result)}`)
  const greeting = `{"protocolVersion":"${MODERN_VERSION}",${parts.join()}}`
  return { text: greeting, value: JSON.parse(greeting) as Message['value'] }
}

function serverInfo(text: string, { _meta }: Message['value']): string {
  const told = isObject(_meta) && isObject(_meta[SERVER_INFO_KEY])
  return told ? rawAt(text, ['result', '_meta', SERVER_INFO_KEY]) : '{"name":"unknown","version":"0"}'
}
