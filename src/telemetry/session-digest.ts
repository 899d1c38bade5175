import { createHash } from 'node:crypto'
import type { Caller } from '../mesh/call.ts'

const digests = new WeakMap<Caller, string>()

/** Stands for the id of a session wherever people read: it tells sessions apart, and opens none. Made once: a caller has one session. */
export function sessionDigest(caller: Caller, session: string): string {
  const known = digests.get(caller)
  if (known !== undefined) return known
  const digest = createHash('sha256').update(session).digest('hex').slice(0, 16)
  digests.set(caller, digest)
  return digest
}
