/** The headers of a reply, as they came from the wire; read by name only, for hardly any is ever looked at. */
export class ReplyHeaders {
  readonly #raw: readonly Buffer[]

  /** `raw` holds names and values in turn. */
  constructor(raw: readonly Buffer[]) {
    this.#raw = raw
  }

  /** The first value of a header; `name` in lower case. */
  get(name: string): string | undefined {
    for (let at = 0; at + 1 < this.#raw.length; at += 2) {
      const candidate = this.#raw[at]
      // By length first: most names need not become strings.
      if (candidate?.length !== name.length || candidate.toString('latin1').toLowerCase() !== name) continue
      return this.#raw[at + 1]?.toString('latin1')
    }
    return undefined
  }

  /** The media type, in lower case; empty when there is none. */
  get mediaType(): string {
    return this.get('content-type')?.toLowerCase() ?? ''
  }
}
