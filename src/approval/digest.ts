import { createHash } from 'node:crypto'
import { canonicalJson } from '../protocol/canonical-json.ts'

/**
 * Returns the SHA-256 of a value's canonical JSON as 64 hex digits. With fewer digits, an agent could construct two
 * plans with equal hashes.
 */
export function digestOf(value: unknown): string {
  const text = canonicalJson(value)
  if (text === undefined) throw new Error('the value nests too deep to be hashed')
  return createHash('sha256').update(text).digest('hex')
}
