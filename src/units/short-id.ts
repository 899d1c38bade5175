import { createHash } from 'node:crypto'

/** Ids of this length or longer, in characters, are kept as a hash: a server's ids may have any length. */
const LONG_ID = 128

/** Returns the id if short, else its SHA-256. */
export function shortId(id: string): string {
  return id.length < LONG_ID ? id : `sha256 ${createHash('sha256').update(id).digest('base64')}`
}
