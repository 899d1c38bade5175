import type { KeyObject } from 'node:crypto'
import { type FileHandle, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { chainHash, formatLine, readChain, ROOT } from '../chaos/journal/chain.ts'
import { headPath, openKey, readHead, readOrNothing, writeHead } from '../chaos/journal/head.ts'
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
  readonly #folder: string
  readonly #key: KeyObject
  readonly #file: FileHandle
  #hash: string
  #line: number
  #size: number
  #last: Promise<unknown> = Promise.resolve()

  private constructor(
    folder: string,
    key: KeyObject,
    file: FileHandle,
    end: { readonly hash: string; readonly line: number; readonly size: number },
  ) {
    this.#folder = folder
    this.#key = key
    this.#file = file
    this.#hash = end.hash
    this.#line = end.line
    this.#size = end.size
  }

  /**
   * Opens the ledger of a state folder. `now`: milliseconds since the epoch. `isExpected`: a missing ledger is damage.
   * An incomplete last line is removed, because the process ended during the write, before acting on the entry. With
   * other damage, the damaged file is renamed, and the damage is returned. Rejects when the folder cannot be used.
   */
  static async open(folder: string, now: number, isExpected = false): Promise<OpenedLedger> {
    const key = await openKey(folder)
    const path = join(folder, FILE)
    const text = await readOrNothing(path)
    const head = await readHead(headPath(folder, path), key)
    let damage: string | undefined
    if (text === undefined && (isExpected || head !== 'none')) damage = `${path} is missing`
    if (text !== undefined && head === 'none') damage = `the head of ${path} is missing`
    if (head === 'forged') damage = `the head of ${path} was made without the key`
    const chain = text === undefined ? undefined : readChain(text, key)
    if (chain?.broken !== undefined && !chain.broken.isTorn)
      damage ??= `line ${chain.broken.line} of ${path} ${chain.broken.why}`
    if (chain !== undefined && typeof head === 'object' && chain.hashes[head.line - 1] !== head.hash)
      damage ??= `${path} is older than its head, or was changed`
    const read = (chain?.lines ?? []).slice(1) as unknown as LedgerEntry[]
    if (damage !== undefined) {
      if (text !== undefined) await rename(path, `${path}.damaged`)
      const entries: LedgerEntry[] = [...read, { kind: 'damaged', at: now, why: damage }]
      return { ledger: await Ledger.#begin(folder, key, entries), entries, damage }
    }
    const isLarge = (chain?.bytes ?? 0) > COMPACT_BYTES
    const kept = isLarge
      ? read.filter(
          ({ kind, at }) => at > now - (shortLived.includes(kind) ? SHORT_LIVED_MS : COMPACT_AGE_MS),
        )
      : read
    if (chain === undefined || isLarge)
      return { ledger: await Ledger.#begin(folder, key, kept), entries: kept, damage }
    const file = await open(path, 'r+', 0o600)
    await file.truncate(chain.bytes)
    const end = { hash: chain.hashes.at(-1)!, line: chain.lines.length, size: chain.bytes }
    return { ledger: new Ledger(folder, key, file, end), entries: read, damage }
  }

  /** Writes a new file with these entries, and replaces the old file. */
  static async #begin(folder: string, key: KeyObject, entries: readonly LedgerEntry[]): Promise<Ledger> {
    const path = join(folder, FILE)
    const draft = `${path}.new`
    const file = await open(draft, 'w+', 0o600)
    const ledger = new Ledger(folder, key, file, { hash: ROOT, line: 0, size: 0 })
    await ledger.#put([{ kind: 'header', at: entries[0]?.at ?? 0, file: 1, previous: ROOT }, ...entries])
    await rename(draft, path)
    await ledger.#writeHead()
    return ledger
  }

  /** Whether the ledger is half full. The gateway then writes only mandatory entries. */
  get isNearlyFull(): boolean {
    return this.#size > MOST_BYTES / 2
  }

  /** Resolves once the entry is on disk. Rejects when the entry cannot be written, or the ledger is full. */
  add(entry: LedgerEntry): Promise<void> {
    const next = this.#last.then(async () => {
      if (this.#size > MOST_BYTES)
        throw new Error(`${FILE} has ${MOST_BYTES} bytes, the limit: restart the gateway`)
      await this.#put([entry])
      await this.#writeHead()
    })
    this.#last = next.catch(() => undefined)
    return next
  }

  async close(): Promise<void> {
    await this.#last
    await this.#file.close()
  }

  async #put(records: readonly object[]): Promise<void> {
    let hash = this.#hash
    let text = ''
    for (const record of records) {
      const json = JSON.stringify(record)
      hash = chainHash(this.#key, hash, json)
      text += formatLine(hash, json)
    }
    const bytes = Buffer.from(text)
    await this.#file.write(bytes, 0, bytes.length, this.#size)
    await this.#file.datasync()
    this.#hash = hash
    this.#line += records.length
    this.#size += bytes.length
  }

  async #writeHead(): Promise<void> {
    const path = join(this.#folder, FILE)
    const head = { file: 1, oldest: 1, line: this.#line, hash: this.#hash }
    await writeHead(headPath(this.#folder, path), this.#key, head)
  }
}
