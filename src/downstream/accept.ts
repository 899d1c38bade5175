/** The `Accept` header that the MCP SDKs send. */
const BOTH = 'application/json, text/event-stream'

/** Formats that a client accepts for the reply to a POST. */
export interface Accepted {
  readonly json: boolean
  readonly events: boolean
}

const both: Accepted = { json: true, events: true }

/** The last header read: most clients send the same header with each request. */
let latest = { header: '*/*', accepted: both }

/** Reads an `Accept` header, in any case of letters; a client without the header accepts everything. */
export function acceptedBy(header: string | undefined): Accepted {
  if (header === BOTH || header === undefined) return both
  if (header !== latest.header) latest = { header, accepted: read(header) }
  return latest.accepted
}

function read(header: string): Accepted {
  const types = new Set(header.toLowerCase().split(',').filter(isWanted).map(typeOf))
  const any = types.has('*/*')
  return {
    json: any || types.has('application/*') || types.has('application/json'),
    events: any || types.has('text/*') || types.has('text/event-stream'),
  }
}

const typeOf = (range: string) => (range.split(';', 1)[0] ?? '').trim()

/** False when the range has weight 0: weight 0 refuses a type (RFC 9110, section 12.4.2). */
const isWanted = (range: string) => !/;\s*q=0(?:\.0*)?\s*(?:;|$)/.test(range)
