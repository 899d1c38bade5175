import { type Fields, lengthIn, onlyValue, readFields } from '../../wire/http-head.ts'
import { ReplyHeaders } from './http-status.ts'

/** The head of a reply, with the framing of its body. */
export interface ReplyHead {
  readonly status: number
  readonly headers: ReplyHeaders
  /** Length of the body in bytes; `chunks`: the chunked coding; `close`: the body ends with the connection. */
  readonly body: number | 'chunks' | 'close'
  /** How long the connection may be used again after the reply, in milliseconds; 0: the server closes it. */
  readonly keepMs: number
}

/** How long a connection is kept without a word of the server, and at most; in milliseconds. */
export const KEEP_MS = 4_000
const MOST_KEEP_MS = 600_000

/** A connection is given up this long before its server says to close it: a request under way would be lost. */
const MARGIN_MS = 2_000

const START = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/

/**
 * Reads the head of a reply: Latin-1, without the empty line. Returns undefined for a head that readers could take in two
 * ways, such as one with two lengths, or with a length and a transfer coding (RFC 9112, section 6.3).
 */
export function readReplyHead(text: string): ReplyHead | undefined {
  const end = text.indexOf('\r\n')
  const [, minor, digits] = START.exec(end === -1 ? text : text.slice(0, end)) ?? []
  if (digits === undefined) return undefined
  const fields = end === -1 ? [] : readFields(text, end + 2, true)
  if (fields === undefined) return undefined
  const status = Number(digits)
  const body = bodyOf(status, fields)
  if (body === undefined) return undefined
  // Programs disagree on how a server of HTTP/1.0 asks to keep a connection.
  const isKept = minor === '1' && body !== 'close' && !optionsIn(fields).includes('close')
  return { status, headers: ReplyHeaders.of(fields), body, keepMs: isKept ? keepMs(fields) : 0 }
}

function bodyOf(status: number, fields: Fields): ReplyHead['body'] | undefined {
  const coding = onlyValue(fields, 'transfer-encoding')
  const declared = onlyValue(fields, 'content-length')
  const length = declared === undefined || declared === null ? undefined : lengthIn(declared)
  if (coding === null || declared === null || (declared !== undefined && length === undefined))
    return undefined
  if (coding !== undefined && (declared !== undefined || coding.toLowerCase() !== 'chunked')) return undefined
  // RFC 9110, section 8.6, forbids a body in interim responses; a reader may take a declared one all the same.
  if (status < 200) return coding === undefined && (length ?? 0) === 0 ? 0 : undefined
  if (status === 204 || status === 304) return 0
  return coding === undefined ? (length ?? 'close') : 'chunks'
}

/** The options of all `Connection` fields, in lower case; some servers name the field `Proxy-Connection`. */
function optionsIn(fields: Fields): readonly string[] {
  const options: string[] = []
  for (let at = 0; at < fields.length; at += 2)
    if (fields[at] === 'connection' || fields[at] === 'proxy-connection')
      for (const option of fields[at + 1]!.toLowerCase().split(',')) options.push(option.trim())
  return options
}

function keepMs(fields: Fields): number {
  const [, seconds] = /timeout=(\d{1,6})/i.exec(onlyValue(fields, 'keep-alive') ?? '') ?? []
  return seconds === undefined
    ? KEEP_MS
    : Math.max(0, Math.min(Number(seconds) * 1_000 - MARGIN_MS, MOST_KEEP_MS))
}
