import { compositeEntries } from './composite.ts'
import { connectionEntries } from './connection.ts'
import type { Entries } from './entry.ts'
import { handshakeEntries } from './handshake.ts'
import { listEntries } from './lists.ts'
import { processEntries } from './process.ts'
import { replyEntries } from './replies.ts'
import { standingEntries } from './standing.ts'
import { requestEntries } from './requests.ts'
import { resultEntries } from './results.ts'

/** The check of each type of fault: a type without an entry here fails the test. */
export const entries: Entries = {
  ...listEntries,
  ...requestEntries,
  ...connectionEntries,
  ...processEntries,
  ...handshakeEntries,
  ...replyEntries,
  ...standingEntries,
  ...resultEntries,
  ...compositeEntries,
}
