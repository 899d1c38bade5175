import { createHash } from 'node:crypto'

/** From this length on an id is remembered by its hash, in characters: servers make them as long as they like. */
const LONG_ID = 128

/** An id as it is kept: itself if it is short, or its SHA-256. */
export function shortId(id: string): string {
  return id.length < LONG_ID ? id : `sha256 ${createHash('sha256').update(id).digest('base64')}`
}
