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

  constructor(host: string) {
    this.#host = host
  }

  /**
   * Returns the head of a request with the empty line. Undefined for a request with a header of `ofConnection`, with
   * another form of a name or value, or with a value outside of ASCII.
   */
  of({ method, path, headers, body }: CallRequest): string | undefined {
    let known = this.#known.get(headers)
    if (known?.path !== path) this.#known.set(headers, (known = { path, text: this.#lines(path, headers) }))
    const { text } = known
    if (text === undefined) return undefined
    const length = body === undefined ? '' : `content-length: ${Buffer.byteLength(body)}\r\n`
    return `${method} ${text}${length}\r\n`
  }

  /** Returns the head after the method and before the length. */
  #lines(path: string, headers: readonly string[]): string | undefined {
    if (!PATH.test(path)) return undefined
    let lines = `${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`
    for (let at = 0; at < headers.length; at += 2) {
      const [name = '', value = ''] = [headers[at], headers[at + 1]]
      if (!NAME.test(name) || ofConnection.has(name.toLowerCase()) || !VALUE.test(value)) return undefined
      lines += `${name}: ${value}\r\n`
    }
    return lines
  }
}
