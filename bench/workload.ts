/** The work of every subject in a run. */
export interface Workload {
  /** Reply of the upstream to a tool call: a JSON body, or an event stream with a single event. */
  readonly reply: 'json' | 'sse'
  /** Bytes that the upstream appends to the text of every result. */
  readonly fill: number
  readonly calls: number
}

export const workloads: Readonly<Record<string, Workload>> = {
  small: { reply: 'json', fill: 0, calls: 2_500 },
  sse: { reply: 'sse', fill: 0, calls: 2_500 },
  large: { reply: 'json', fill: 64 * 1024, calls: 500 },
  huge: { reply: 'json', fill: 200 * 1024, calls: 300 },
}

/** Returns ASCII text of `bytes` bytes without repeated stretches, so that a lost or swapped chunk shows. */
export function filling(bytes: number): string {
  let text = ''
  for (let i = 0; text.length < bytes; i++) text += ` ${i}`
  return text.slice(0, bytes)
}
