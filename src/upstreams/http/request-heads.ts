import type { CallRequest } from './calls.ts'

/** Headers that change the connection or the framing of a request. */
const ofConnection: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'content-length',
  'upgrade',
  'expect',
])

const NAME = /^[\w!#$%&'*+.^`|~-]+$/

/** Values of ASCII: others need another encoding than the body. */
const VALUE = /^[\t\x20-\x7e]*$/

const PATH = /^\/[\x21-\x7e]*$/

/** Most names that were found right and are remembered. */
const MOST_NAMES = 256

/**
 * Writes the heads of requests. Sessions pass the same array of headers with each call, so the text of an array is kept
 * as long as the array.
 */
export class RequestHeads {
  readonly #host: string
  readonly #known = new WeakMap<
    readonly string[],
    { readonly path: string; readonly text: string | undefined }
  >()
  readonly #names = new Set<string>()

  constructor(host: string) {
    this.#host = host
  }

  /**
   * Returns the head of a request with the empty line. Undefined for a request with a header of `ofConnection`, with
   * another form of a name or value, or with a value outside of ASCII.
   */
  of({ method, path, headers, more, body }: CallRequest): string | undefined {
    let known = this.#known.get(headers)
    if (known?.path !== path) this.#known.set(headers, (known = { path, text: this.#begin(path, headers) }))
    const text = more === undefined ? known.text : this.#with(known.text, more)
    if (text === undefined) return undefined
    const length = body === undefined ? '' : `content-length: ${Buffer.byteLength(body)}\r\n`
    return `${method} ${text}${length}\r\n`
  }

  /** Returns the head after the method, with these headers. */
  #begin(path: string, headers: readonly string[]): string | undefined {
    if (!PATH.test(path)) return undefined
    return this.#with(`${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`, headers)
  }

  #with(begun: string | undefined, headers: readonly string[]): string | undefined {
    if (begun === undefined) return undefined
    let lines = begun
    for (let at = 0; at < headers.length; at += 2) {
      const name = headers[at]!
      const value = headers[at + 1]!
      if (!this.#isRight(name) || !VALUE.test(value)) return undefined
      lines += `${name}: ${value}\r\n`
    }
    return lines
  }

  #isRight(name: string): boolean {
    if (this.#names.has(name)) return true
    if (!NAME.test(name) || ofConnection.has(name.toLowerCase())) return false
    if (this.#names.size < MOST_NAMES) this.#names.add(name)
    return true
  }
}
