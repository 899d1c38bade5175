import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { locate, type Path } from '../protocol/json-span.ts'

/** Most that a client may say of itself, in bytes: it is kept for as long as the client stays. */
export const MAX_HELLO = 16 * 1024

/** Most members and elements in what a client says of itself: parsed, each takes up to twenty times its text. */
export const MAX_HELLO_VALUES = 256

/**
 * Why what stands at these places of a request is too much to be kept; undefined when it is not. `said` is the same
 * parsed.
 */
export function tooMuchToSay(
  text: string,
  said: readonly unknown[],
  ...paths: readonly Path[]
): string | undefined {
  const names = () => paths.map((path) => path.at(-1)).join(' and ')
  let values = 0
  for (const value of said) values += valuesIn(value, MAX_HELLO_VALUES - values)
  if (values > MAX_HELLO_VALUES)
    return `Invalid params: ${names()} have too many members and elements (at most ${MAX_HELLO_VALUES})`
  // No character takes more than three bytes of UTF-8: most requests need no second look.
  if (text.length * 3 <= MAX_HELLO) return undefined
  let bytes = 0
  for (const path of paths) {
    const span = locate(text, path)
    if (span !== undefined) bytes += Buffer.byteLength(text.slice(span.start, span.end))
  }
  if (bytes <= MAX_HELLO) return undefined
  return `Invalid params: ${names()} take ${bytes} bytes (at most ${MAX_HELLO})`
}

/** How many members and elements a value has; counts no further than to one more than `most`. */
function valuesIn(value: unknown, most: number): number {
  if (typeof value !== 'object' || value === null) return 0
  const inner: unknown[] = Array.isArray(value) ? value : Object.values(value)
  let count = inner.length
  for (let at = 0; at < inner.length && count <= most; at++) count += valuesIn(inner[at], most - count)
  return count
}

/** What a member or element takes in memory at most, besides its text, in bytes; measured. */
const VALUE_BYTES = 128

/** What all clients together may have kept of what they say of themselves, and one of them, in bytes of memory. */
const MAX_GREETINGS = { total: 128 * 1024 ** 2, perClient: 64 * 1024 ** 2 }

/** These limits, as the metric of refusals names them. */
export const greetingLimits = ['greetings', 'greetings_per_client'] as const

export type GreetingLimit = (typeof greetingLimits)[number]

/** When to try again, in milliseconds: nobody knows when somebody leaves. */
const RETRY_MS = 5_000

/** What a greeting takes in memory at most, with the headers that came with it, in bytes. */
export function greetingBytes(hello: unknown, headers: unknown): number {
  // A character takes one byte or two.
  const text = 2 * JSON.stringify([hello, headers]).length
  return text + VALUE_BYTES * (valuesIn(hello, Infinity) + valuesIn(headers, Infinity))
}

/** Counts what is kept of greetings. Who takes gives back. */
export class Greetings {
  readonly #refused: (limit: GreetingLimit) => void
  readonly #limits: typeof MAX_GREETINGS
  readonly #kept = new Map<object, { readonly client: string; readonly bytes: number }>()
  readonly #byClient = new Map<string, number>()
  #total = 0

  /** `refused` is told of each refusal. */
  constructor(refused: (limit: GreetingLimit) => void, limits = MAX_GREETINGS) {
    this.#refused = refused
    this.#limits = limits
  }

  /** What is kept, in bytes. */
  get bytes(): number {
    return this.#total
  }

  /** Why a client's greeting of so many bytes may not be kept; undefined when it may. */
  refusal(client: string, bytes: number): GatewayError | undefined {
    const { total, perClient } = this.#limits
    if ((this.#byClient.get(client) ?? 0) + bytes > perClient)
      return this.#refuse('greetings_per_client', ' of this client', perClient)
    return this.#total + bytes > total ? this.#refuse('greetings', '', total) : undefined
  }

  #refuse(limit: GreetingLimit, whose: string, most: number): GatewayError {
    this.#refused(limit)
    const message = `what is kept of clientInfo and capabilities${whose} is too much (at most ${most} bytes)`
    return gatewayError('overloaded', message, { retryAfterMs: RETRY_MS })
  }

  take(owner: object, client: string, bytes: number): void {
    this.#kept.set(owner, { client, bytes })
    this.#add(client, bytes)
  }

  release(owner: object): void {
    const kept = this.#kept.get(owner)
    if (kept === undefined) return
    this.#kept.delete(owner)
    this.#add(kept.client, -kept.bytes)
  }

  #add(client: string, bytes: number): void {
    const ofClient = (this.#byClient.get(client) ?? 0) + bytes
    if (ofClient > 0) this.#byClient.set(client, ofClient)
    else this.#byClient.delete(client)
    this.#total += bytes
  }
}
