import type { KeyObject } from 'node:crypto'
import { open, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { chainHash, formatLine, ROOT } from '../chaos/journal/chain.ts'
import { readChain } from '../chaos/journal/read-chain.ts'
import { openKey, readKey } from '../chaos/journal/head.ts'
import { makeFolder } from '../units/folder.ts'
import type { GameDayRecord } from './record.ts'

/** Most GameDays that a folder holds; a new one needs another folder, because none is removed. */
export const MAX_GAME_DAYS = 1_000

const folderOf = (stateDir: string) => join(stateDir, 'gamedays')

const ID = /^gd-[a-z0-9]{1,16}-[0-9a-f]{8}$/

/** The GameDays of a state folder: a file each, with a hash under the key of the folder. */
export interface StoredGameDays {
  /** The oldest first. */
  readonly records: readonly GameDayRecord[]
  /** Files that cannot be used, and why. */
  readonly problems: readonly { readonly file: string; readonly why: string }[]
}

/** Reads all GameDays of a state folder. Rejects when the folder cannot be read. */
export async function readGameDays(stateDir: string): Promise<StoredGameDays> {
  const folder = folderOf(stateDir)
  const key = await readKey(stateDir)
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  const records: GameDayRecord[] = []
  const problems: { file: string; why: string }[] = []
  for (const name of names.sort()) {
    if (!name.endsWith('.json') || !ID.test(name.slice(0, -5))) continue
    const file = join(folder, name)
    const read = await readOne(file, key).catch((error: Error) => error.message)
    if (typeof read === 'string') problems.push({ file, why: read })
    else if (`${read.id}.json` !== name) problems.push({ file, why: `holds the GameDay ${read.id}` })
    else records.push(read)
  }
  return { records: records.sort((a, b) => a.startedAt - b.startedAt), problems }
}

async function readOne(file: string, key: KeyObject | undefined): Promise<GameDayRecord | string> {
  if (key === undefined) return 'cannot be checked: the state folder has no key'
  const chain = await readChain(file, key)
  if (chain?.broken !== undefined) return `line ${chain.broken.line} ${chain.broken.why}`
  if (chain !== undefined && chain.cutBytes > 0) return 'is cut off in the middle'
  const record = (chain?.header as { readonly gameDay?: GameDayRecord } | undefined)?.gameDay
  return record?.format === 1 ? record : 'holds no GameDay of this version'
}

/** Writes GameDays, one write after the other. */
export class GameDayStore {
  readonly #folder: string
  readonly #key: KeyObject
  #last: Promise<void> = Promise.resolve()
  /** The latest record of each GameDay that waits for its write. */
  readonly #waiting = new Map<string, GameDayRecord>()

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
    this.#waiting.set(record.id, record)
    const next = this.#last.then(() => this.#flush(record.id))
    this.#last = next.catch(() => undefined)
    return next
  }

  async #flush(id: string): Promise<void> {
    const record = this.#waiting.get(id)
    if (record === undefined) return
    this.#waiting.delete(id)
    const json = JSON.stringify({
      kind: 'header',
      at: record.startedAt,
      file: 1,
      previous: ROOT,
      gameDay: record,
    })
    const path = join(this.#folder, `${id}.json`)
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
