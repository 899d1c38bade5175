import { join } from 'node:path'
import { ChainFile, checkedRecords, keepDamaged } from '../chaos/journal/chain-file.ts'
import { headPath, openKey } from '../chaos/journal/head.ts'
import { drained, parseRecord } from '../chaos/journal/read-chain.ts'
import type { RunHashes, SignedApproval, SignedLift } from './approval.ts'
import type { SignedEnvelope } from './envelope.ts'

/** Maximum size of the ledger, in bytes. From half of this size on, the gateway writes only mandatory entries. */
const MOST_BYTES = 64 * 1024 ** 2

/** Size limit in bytes. The opening of a larger ledger removes old entries. */
const COMPACT_BYTES = 8 * 1024 ** 2

/** Age of the entries removed from a large ledger, in milliseconds: 90 days. */
const COMPACT_AGE_MS = 90 * 86_400_000

/** Kinds of short-lived entries: a large ledger keeps these entries for a day. */
const shortLived: readonly LedgerEntry['kind'][] = ['proposed', 'refused', 'clock']

/** Age of the short-lived entries removed from a large ledger, in milliseconds: a day. */
const SHORT_LIVED_MS = 86_400_000

/** The highest share of a completed run, for a server and a fault. */
export interface Reached {
  /** SHA-256 of the server's URLs or command. */
  readonly identity: string
  /** Digest of the fault without `name` and `match`. A fault with another rate or field has another digest. */
  readonly fault: string
  readonly share: number
}

/** An entry of the ledger. `at`: milliseconds since the Unix epoch. */
export type LedgerEntry = { readonly at: number } & (
  | { readonly kind: 'envelope'; readonly signed: SignedEnvelope; readonly by: string }
  | { readonly kind: 'withdrawn'; readonly envelope: string; readonly by: string }
  | { readonly kind: 'lifted'; readonly signed: SignedLift; readonly by: string }
  | ({
      readonly kind: 'proposed'
      readonly proposal: string
      readonly by: string
      readonly name: string
      readonly why: string
      readonly envelope: string | undefined
    } & RunHashes)
  | { readonly kind: 'approved'; readonly signed: SignedApproval; readonly by: string }
  | {
      /** Use of an approval or a budget. Written before the run begins, and valid even if the run cannot begin. */
      readonly kind: 'spent'
      readonly proposal: string
      readonly by: string
      readonly run: string
      readonly envelope: string | undefined
      /** Nonce of the approval; undefined without an approval. */
      readonly nonce: string | undefined
    }
  | {
      /** End of a run. */
      readonly kind: 'over'
      readonly run: string
      readonly state: string
      readonly envelope: string | undefined
      readonly reached: readonly Reached[]
    }
  | {
      readonly kind: 'refused'
      readonly by: string
      readonly order: string
      readonly code: string
      readonly message: string
    }
  /** Records the latest time. */
  | { readonly kind: 'clock' }
  /** The earlier ledger was damaged. All envelopes before this entry are suspended. */
  | { readonly kind: 'damaged'; readonly why: string }
)

/** An entry without a time. */
export type NewEntry = LedgerEntry extends infer Entry
  ? Entry extends unknown
    ? Omit<Entry, 'at'>
    : never
  : never

const FILE = 'approvals.jsonl'

export interface OpenedLedger {
  readonly ledger: Ledger
  readonly entries: readonly LedgerEntry[]
  /** The damage found in the ledger. Undefined: the ledger is intact. */
  readonly damage: string | undefined
}

/**
 * The entries about envelopes, approvals and runs of agents. The file is a hash chain of JSON lines, with the key of
 * the state folder. Each entry is on disk before the gateway acts on the entry.
 */
export class Ledger {
  readonly #chain: ChainFile

  private constructor(chain: ChainFile) {
    this.#chain = chain
  }

  /**
   * Opens the ledger of a state folder. `now`: milliseconds since the epoch. `isExpected`: a missing ledger is damage.
   * An incomplete last line is removed, because the process ended during the write, before acting on the entry. With
   * other damage, the damaged file is kept aside, and the damage is returned. Rejects when the folder cannot be used.
   */
  static async open(folder: string, now: number, isExpected = false): Promise<OpenedLedger> {
    const path = join(folder, FILE)
    const place = { path, headPath: headPath(folder, path), key: await openKey(folder) }
    const read: LedgerEntry[] = []
    const { chain, damage } = await drained(checkedRecords(place, parseRecord, isExpected), (record) =>
      read.push(record as unknown as LedgerEntry),
    )
    const begun = async (entries: readonly LedgerEntry[]) => ({
      ledger: new Ledger(await ChainFile.begin(place, entries)),
      entries,
      damage,
    })
    if (damage !== undefined) {
      if (chain !== undefined) await keepDamaged(path)
      return begun([...read, { kind: 'damaged', at: now, why: damage }])
    }
    if (chain === undefined) return begun([])
    if (chain.bytes > COMPACT_BYTES)
      return begun(
        read.filter(
          ({ kind, at }) => at > now - (shortLived.includes(kind) ? SHORT_LIVED_MS : COMPACT_AGE_MS),
        ),
      )
    return { ledger: new Ledger(await ChainFile.continue(place, chain)), entries: read, damage }
  }

  /** Whether the ledger is half full. The gateway then writes only mandatory entries. */
  get isNearlyFull(): boolean {
    return this.#chain.size > MOST_BYTES / 2
  }

  /** Resolves once the entry is on disk. Rejects when the entry cannot be written, or the ledger is full. */
  async add(entry: LedgerEntry): Promise<void> {
    if (this.#chain.size > MOST_BYTES)
      throw new Error(`${FILE} has ${MOST_BYTES} bytes, the limit: restart the gateway`)
    await this.#chain.append([entry])
  }

  close(): Promise<void> {
    return this.#chain.close()
  }
}
