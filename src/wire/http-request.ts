import type { IncomingHttpHeaders } from 'node:http'
import { lengthIn, readFields } from './http-head.ts'

/** The head of a usual request: a POST of JSON whose body has a declared length. */
export interface UsualRequest {
  readonly path: string
  /** Names in lower case. Every name occurs once. The object may be shared by several requests: nobody may change it. */
  readonly headers: Readonly<IncomingHttpHeaders>
  /** Length of the body in bytes, at least 1. */
  readonly length: number
}

/** Longest head of a usual request, in bytes, and most fields. Node's server reads heads of up to 16 KiB. */
export const LONGEST_USUAL_HEAD = 8 * 1024
const MOST_FIELDS = 64

const START = 'POST '
const VERSION = ' HTTP/1.1\r\n'

/** A path that needs no decoding, in one form only. */
const PATH = /^\/[\w.~-]+(?:\/[\w.~-]+)*$/

/** Fields that change how a message is read or answered, or whose value Node's server does not give as a text. */
const unusual: ReadonlySet<string> = new Set([
  'transfer-encoding',
  'expect',
  'upgrade',
  'trailer',
  'te',
  'http2-settings',
  'proxy-connection',
  'set-cookie',
  '__proto__',
])

/**
 * Reads the head of a request, as Latin-1, up to and without the empty line. Returns undefined for everything but the
 * usual form, byte for byte: `POST` of a plain path by HTTP/1.1, one `Host`, one `Content-Length` of digits, no field
 * twice, no value outside of ASCII, and no field of `unusual`. A parser that reads all of HTTP/1.1 must read such text.
 */
export function readUsualRequest(head: string): UsualRequest | undefined {
  if (!head.startsWith(START)) return undefined
  const end = head.indexOf(VERSION, START.length)
  if (end === -1) return undefined
  const path = head.slice(START.length, end)
  if (!PATH.test(path)) return undefined
  const fields = readFields(head, end + VERSION.length, false)
  if (fields === undefined || fields.length > 2 * MOST_FIELDS) return undefined
  const headers: Record<string, string> = {}
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at]!
    if (Object.hasOwn(headers, name) || unusual.has(name)) return undefined
    headers[name] = fields[at + 1]!
  }
  const { host, connection, 'content-length': declared = '' } = headers
  if (host === undefined || !(connection === undefined || /^keep-alive$/i.test(connection))) return undefined
  const length = lengthIn(declared)
  return length === undefined || length === 0 ? undefined : { path, headers, length }
}
