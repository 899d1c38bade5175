/** One JSON-RPC message on its way: its exact text, and the value that was read from it. */
export interface Message {
  /** The JSON text. Nobody re-serialises it: changes are spliced in, so that unknown fields survive. */
  readonly text: string
  /** What `JSON.parse` made of `text`. */
  readonly value: Readonly<Record<string, unknown>>
}
