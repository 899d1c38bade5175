import type { KeptRecord } from './journal.ts'

/** Says which records to keep: the newest `keep`, or those of runs that ended at `endedAfter` or later. */
export type Limit = { readonly keep: number } | { readonly endedAfter: number }

export interface Prunable {
  /** The records to remove, the oldest first. */
  readonly records: readonly KeptRecord[]
  /** The first record past the limit whose run has no summary. This record and all later records stay. */
  readonly unsummarised: KeptRecord | undefined
}

/**
 * Returns the records past a limit, of all records with the oldest first. The journal is a chain, so only its oldest
 * records can go. `isSummarised`: whether the index has the run.
 */
export function prunable(
  all: readonly KeptRecord[],
  limit: Limit,
  isSummarised: (id: string) => boolean,
): Prunable {
  const isKept = ({ endedAt }: KeptRecord, at: number) =>
    'keep' in limit ? at >= all.length - limit.keep : endedAt >= limit.endedAfter
  const first = all.findIndex(isKept)
  const past = first === -1 ? all : all.slice(0, first)
  const unsummarised = past.find(({ id }) => !isSummarised(id))
  return {
    records: unsummarised === undefined ? past : past.slice(0, past.indexOf(unsummarised)),
    unsummarised,
  }
}
