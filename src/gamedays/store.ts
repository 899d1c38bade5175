import type { KeyObject } from 'node:crypto'
import { open, readdir, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { chainHash, formatLine, ROOT } from '../chaos/journal/chain.ts'
import { readChain } from '../chaos/journal/read-chain.ts'
import { openKey, readKey } from '../chaos/journal/head.ts'
import { makeFolder } from '../units/folder.ts'
import { formatSize } from '../units/size.ts'
import { isGameDayRecord } from './record-shape.ts'
import type { GameDayRecord } from './record.ts'

/** Most GameDays that a folder holds; a new one needs another folder, because none is removed. */
export const MAX_GAME_DAYS = 1_000

const folderOf = (stateDir: string) => join(stateDir, 'gamedays')

const ID = /^gd-[a-z0-9]{1,16}-[0-9a-f]{8}$/

/** Largest file that is read, in bytes; a GameDay with the largest plan and all observations has less. */
const MAX_BYTES = 8 * 1024 ** 2

/** The GameDays of a state folder: a file each, with a hash under the key of the folder. */
export interface StoredGameDays {
  /** The oldest first. */
  readonly records: readonly GameDayRecord[]
  /** Files that cannot be used, and why. */
  readonly problems: readonly { readonly file: string; readonly why: string }[]
  /** Number of files of GameDays, unread and damaged ones included. */
  readonly files: number
}

/**
 * Reads the GameDays of a state folder, by default all, or the newest ones. Rejects when the folder cannot be read.
 */
export async function readGameDays(stateDir: string, newest = Infinity): Promise<StoredGameDays> {
  const folder = folderOf(stateDir)
  const key = await readKey(stateDir)
  const all = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  // An id begins with the time of its start, so the order of names is the order of time.
  const names = all.filter((name) => name.endsWith('.json') && ID.test(name.slice(0, -5))).sort()
  const records: GameDayRecord[] = []
  const problems: { file: string; why: string }[] = []
  for (const name of names.slice(-Math.min(newest, names.length))) {
    const file = join(folder, name)
    const read = await readOne(file, key).catch((error: Error) => error.message)
    if (typeof read === 'string') problems.push({ file, why: read })
    else if (`${read.id}.json` !== name) problems.push({ file, why: `holds the GameDay ${read.id}` })
    else records.push(read)
  }
  return { records: records.sort((a, b) => a.startedAt - b.startedAt), problems, files: names.length }
}

async function readOne(file: string, key: KeyObject | undefined): Promise<GameDayRecord | string> {
  if (key === undefined) return 'cannot be checked: the state folder has no key'
  const { size } = await stat(file)
  if (size > MAX_BYTES) return `has ${formatSize(size)}; at most ${formatSize(MAX_BYTES)} are read`
  const chain = await readChain(file, key)
  if (chain?.broken !== undefined) return `line ${chain.broken.line} ${chain.broken.why}`
  if (chain !== undefined && chain.cutBytes > 0) return 'is cut off in the middle'
  const record = (chain?.header as { readonly gameDay?: unknown } | undefined)?.gameDay
  return isGameDayRecord(record) ? record : 'holds no GameDay of this version'
}

/** A write that has not begun. */
interface Queued {
  record: GameDayRecord
  readonly written: Promise<void>
}

/** Writes GameDays, one write after the other. */
export class GameDayStore {
  readonly #folder: string
  readonly #key: KeyObject
  #last: Promise<void> = Promise.resolve()
  /** The writes that have not begun, by id: a later record replaces the record of such a write. */
  readonly #queued = new Map<string, Queued>()

  private constructor(folder: string, key: KeyObject) {
    this.#folder = folder
    this.#key = key
  }

  /** Rejects when the folder cannot be made. */
  static async open(stateDir: string): Promise<GameDayStore> {
    const folder = folderOf(stateDir)
    makeFolder(folder, 0o700)
    return new GameDayStore(folder, await openKey(stateDir))
  }

  /** Resolves once the record, or a later one of the same GameDay, is on disk. Rejects when the write fails. */
  write(record: GameDayRecord): Promise<void> {
    const { id } = record
    const waiting = this.#queued.get(id)
    if (waiting !== undefined) {
      waiting.record = record
      return waiting.written
    }
    const written = this.#last.then(() => {
      const { record } = this.#queued.get(id)!
      this.#queued.delete(id)
      return this.#replace(record)
    })
    this.#queued.set(id, { record, written })
    this.#last = written.catch(() => undefined)
    return written
  }

  async #replace(record: GameDayRecord): Promise<void> {
    const json = JSON.stringify({
      kind: 'header',
      at: record.startedAt,
      file: 1,
      previous: ROOT,
      gameDay: record,
    })
    const path = join(this.#folder, `${record.id}.json`)
    const file = await open(`${path}.new`, 'w', 0o600)
    try {
      await file.writeFile(formatLine(chainHash(this.#key, ROOT, json), json))
      await file.datasync()
    } finally {
      await file.close()
    }
    await rename(`${path}.new`, path)
  }

  /** Resolves once nothing waits for its write. */
  async flush(): Promise<void> {
    await this.#last
  }
}
