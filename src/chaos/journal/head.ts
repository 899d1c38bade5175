import {
  createHash,
  createHmac,
  createSecretKey,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import { open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { makeFolder } from '../../units/folder.ts'
import type { Chain } from './read-chain.ts'

/**
 * State kept apart from a journal: the key of its chain, and the place where the journal ends. Write access to the
 * journal's files alone is not enough to add a line, or to remove the last lines, unnoticed. Write access together with
 * read access to the key is enough, and so is restoring an earlier head with the files of the same time. Against such
 * an attacker, only sending the journal elsewhere helps.
 */

/** Random bytes in a key. */
const KEY_BYTES = 32

/** The end of a journal, and the files that have to exist. */
export interface Head {
  /** Number of the newest file. */
  readonly file: number
  /** Number of the oldest file not yet dropped. */
  readonly oldest: number
  /** Number of lines of the newest file that are certainly written. */
  readonly line: number
  /** Hash of the last line that is certainly written. */
  readonly hash: string
  /** Known number of later entries that were not written; absent for none. */
  readonly lost?: number
}

/** Size of a head's file in bytes, more than any head needs: so a new head can replace an old head on a full disk. */
const HEAD_BYTES = 512

/** Returns the folder of key and head: the state folder, or without a state folder the journal's folder. */
export const keptIn = (journal: string, stateDir: string | undefined): string =>
  stateDir ?? dirname(resolve(journal))

const keyPath = (folder: string) => join(folder, 'chaos-journal.key')

/** Returns the path of a journal's head. Several journals may share a state folder, over time. */
export function headPath(folder: string, journal: string): string {
  const name = createHash('sha256').update(resolve(journal)).digest('hex').slice(0, 16)
  return join(folder, `chaos-journal-${name}.head`)
}

/** Returns the key of a folder; undefined when there is none. Rejects when the key cannot be read. */
export async function readKey(folder: string): Promise<KeyObject | undefined> {
  const text = await readOrNothing(keyPath(folder))
  if (text === undefined) return undefined
  const bytes = Buffer.from(text.trim(), 'hex')
  if (bytes.length !== KEY_BYTES) throw new Error(`${keyPath(folder)} holds no key`)
  return createSecretKey(bytes)
}

/** Returns the key of a folder; creates a missing key, readable for its owner only. */
export async function openKey(folder: string): Promise<KeyObject> {
  const known = await readKey(folder)
  if (known !== undefined) return known
  makeFolder(folder, 0o700)
  const text = `${randomBytes(KEY_BYTES).toString('hex')}\n`
  // Writes the key under another name first, so that no process reads a partly written key.
  const draft = `${keyPath(folder)}.${randomBytes(6).toString('hex')}`
  await writeFile(draft, text, { mode: 0o600, flag: 'wx' })
  await rename(draft, keyPath(folder))
  return createSecretKey(Buffer.from(text.trim(), 'hex'))
}

/** Returns the head of a journal; `none` when there is none, `forged` when it was not made with the key. */
export async function readHead(path: string, key: KeyObject): Promise<Head | 'none' | 'forged'> {
  const text = await readOrNothing(path)
  if (text === undefined) return 'none'
  const read = parseJson(text)
  if (!isObject(read) || typeof read.mac !== 'string' || !isObject(read.head)) return 'forged'
  const expected = Buffer.from(macOf(key, JSON.stringify(read.head)))
  const found = Buffer.from(read.mac)
  if (expected.length !== found.length || !timingSafeEqual(expected, found)) return 'forged'
  return read.head as unknown as Head
}

/**
 * Writes the head. On a full disk, overwrites the old head in place: a kill during this write leaves a head that counts
 * as forged.
 */
export async function writeHead(path: string, key: KeyObject, head: Head): Promise<void> {
  const text = `${JSON.stringify({ mac: macOf(key, JSON.stringify(head)), head }).padEnd(HEAD_BYTES - 1)}\n`
  const draft = `${path}.new`
  try {
    await writeFile(draft, text, { mode: 0o600 })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    await writeOver(path, text)
  }
}

async function writeOver(path: string, text: string): Promise<void> {
  const file = await open(path, 'r+')
  try {
    await file.writeFile(text)
  } finally {
    await file.close()
  }
}

/** Returns how many lost entries the head knows of that the newest file does not mention. */
export function lostAfter({ file, line, lost = 0 }: Head, { header, hashes }: Chain): number {
  const isToldOf = header !== undefined && (header.file > file || hashes.length > line)
  return isToldOf ? 0 : lost
}

/**
 * Returns the MAC of a head. No record of a chain begins with `head`, so no hash of a line equals the MAC of a head.
 */
const macOf = (key: KeyObject, text: string): string =>
  createHmac('sha256', key).update('head\n').update(text).digest('hex')

/**
 * Returns a file's text; undefined without a file. Rejects with any other error, and for anything but a regular file.
 */
export async function readOrNothing(path: string): Promise<string | undefined> {
  try {
    // Refuses pipes and devices: a pipe would wait for a writer, and a device may have no end.
    if (!(await stat(path)).isFile()) throw new Error(`${path} is no regular file`)
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
