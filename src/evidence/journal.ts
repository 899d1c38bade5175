import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto'
import { lstat, open, readdir, readFile, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { isOver, type RunRecord } from '../experiments/guarded/record.ts'
import { isRunId, isRunRecord } from '../experiments/guarded/record-shape.ts'
import { makeFolder } from '../units/folder.ts'
import { nameAside } from '../units/name-aside.ts'
import { numbered } from '../units/numbered.ts'

/** The `previous` hash of the first run. */
const ROOT = '0'.repeat(64)

/** Maximum number of kept runs, and of their bytes. Beyond either limit, the oldest runs are removed. */
const MAX_RUNS = 200
const MAX_BYTES = 64 * 1024 ** 2

/** Largest document of a run, in bytes. */
const MAX_RUN_BYTES = 4 * 1024 ** 2

/** Maximum number of marks of damage in a head; the first marks are the most useful. */
const MAX_MARKS = 16

/** A run on disk: record and position in the chain. */
interface Sealed {
  /** From 1. */
  readonly seq: number
  /** Hash of the previous run. */
  readonly previous: string
  readonly record: RunRecord
}

/** End of the chain, and oldest kept run. Written at the first opening. */
interface Head {
  readonly seq: number
  readonly oldest: number
  readonly hash: string
  /** Ids of unfinished runs, to notice a removed file. */
  readonly open: readonly string[]
  /** Damage found at earlier openings, not detectable again. */
  readonly damage: readonly string[]
}

export interface JournalProblem {
  readonly file: string
  readonly why: string
}

export interface JournalCheck {
  readonly runs: number
  readonly open: number
  readonly problems: readonly JournalProblem[]
}

export interface OpenedJournal {
  readonly journal: RunJournal
  readonly runs: readonly RunRecord[]
  readonly problems: readonly JournalProblem[]
}

/** Returns the folder of the journal in a state folder. */
export const journalFolder = (stateDir: string): string => join(stateDir, 'experiments')

const HEAD = 'head.json'
const sealedName = /^run-(\d{6,15})\.json$/
const openName = /^open-(.*)\.json$/
/** Names of files put aside because their check failed. */
const damagedName = /^(run-|open-|head\.).*\.damaged(\.\d)?$/
/** Names of drafts left by a process that ended during a write. */
const draftName = /^((run|open)-.*\.json|head\.json|probe)\.new$/

const openFileOf = (id: string) => `open-${id}.json`
const fileOf = (seq: number) => `run-${String(seq).padStart(6, '0')}.json`

/**
 * The runs of a gateway, a JSON document each, in a folder only its owner may enter. Each step of a run rewrites the
 * whole document. A finished run is sealed: its HMAC includes the hash of the previous run. Without the key, nobody can
 * change, remove or insert a sealed run unnoticed. Unfinished runs have a separate HMAC against forgery.
 */
export class RunJournal {
  readonly #folder: string
  readonly #key: KeyObject
  #head: Head = { seq: 0, oldest: 1, hash: ROOT, open: [], damage: [] }
  /** Bytes of each sealed run by `seq`, oldest first. */
  readonly #sizes = new Map<number, number>()
  /** `seq` of each sealed run by its id. */
  readonly #seqs = new Map<string, number>()
  /** The last write: writes run one after the other. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(folder: string, key: KeyObject) {
    this.#folder = folder
    this.#key = key
  }

  /**
   * Opens the journal in a folder, created if missing. Reports files with a failed check as problems, and puts unusable
   * unfinished runs and heads aside. Rejects when the folder cannot be read or written.
   */
  static async open(folder: string, key: KeyObject): Promise<OpenedJournal> {
    makeFolder(folder, 0o700)
    const journal = new RunJournal(folder, key)
    const found = await journal.#load()
    await journal.probe()
    return { journal, ...found }
  }

  /** Rejects when the folder cannot be written to now. */
  async probe(): Promise<void> {
    const path = join(this.#folder, 'probe')
    await write(path, 'probe\n')
    await unlink(path)
  }

  /** Writes a run atomically. Seals a finished run. */
  write(record: RunRecord): Promise<void> {
    const next = this.#last.then(() => (isOver(record) ? this.#seal(record) : this.#put(record)))
    this.#last = next.catch(() => undefined)
    return next
  }

  /** Resolves with a sealed run; undefined when the journal no longer has the run, or the run cannot be read. */
  async find(id: string): Promise<RunRecord | undefined> {
    const seq = this.#seqs.get(id)
    if (seq === undefined || !this.#sizes.has(seq)) return undefined
    const read = parseJson(await readFile(this.#path(fileOf(seq)), 'utf8').catch(() => ''))
    const record = isObject(read) && isObject(read.run) ? read.run.record : undefined
    return isRunRecord(record) ? record : undefined
  }

  /** Resolves when all requested writes have succeeded or failed. */
  async flush(): Promise<void> {
    await this.#last
  }

  #path(name: string): string {
    return join(this.#folder, name)
  }

  async #put(record: RunRecord): Promise<void> {
    await write(this.#openPath(record), signed(this.#key, 'open', limited(JSON.stringify(record))))
    if (this.#head.open.includes(record.id)) return
    // Writes the head after the document: a listed run must exist, even if the process ends in between.
    const head = { ...this.#head, open: [...this.#head.open, record.id] }
    await this.#writeHead(head)
    this.#head = head
  }

  #openPath({ id }: RunRecord): string {
    if (!isRunId(id)) throw new Error(`"${id.slice(0, 64)}" is no id of a run`)
    return this.#path(openFileOf(id))
  }

  async #seal(record: RunRecord): Promise<void> {
    const draft = this.#openPath(record)
    const seq = this.#head.seq + 1
    const body: Sealed = { seq, previous: this.#head.hash, record }
    const json = JSON.stringify(body)
    const hash = hashOf(this.#key, json)
    const text = `{"hash":"${hash}",\n"run":${json}}\n`
    await write(this.#path(fileOf(seq)), text)
    this.#sizes.set(seq, Buffer.byteLength(text))
    this.#seqs.set(record.id, seq)
    const open = this.#head.open.filter((id) => id !== record.id)
    this.#head = { ...this.#head, seq, hash, open }
    await this.#evict()
    await this.#writeHead()
    await remove(draft)
  }

  /** Removes the oldest `count` sealed runs. Their order in the chain, and the head, stay valid. */
  prune(count: number): Promise<void> {
    const next = this.#last.then(() => this.#remove([...this.#sizes.keys()].slice(0, count)))
    this.#last = next.catch(() => undefined)
    return next
  }

  /** Removes the oldest runs past a limit. */
  async #evict(): Promise<void> {
    const gone: number[] = []
    let bytes = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0)
    for (const [seq, size] of this.#sizes) {
      if (this.#sizes.size - gone.length <= MAX_RUNS && bytes <= MAX_BYTES) break
      if (this.#sizes.size - gone.length === 1) break
      gone.push(seq)
      bytes -= size
    }
    await this.#remove(gone)
  }

  /** Removes the oldest runs, after updating the head: a process that ends in between leaves runs, and no gap. */
  async #remove(gone: readonly number[]): Promise<void> {
    if (gone.length === 0) return
    this.#head = { ...this.#head, oldest: gone.at(-1)! + 1 }
    await this.#writeHead()
    for (const seq of gone) {
      await remove(this.#path(fileOf(seq)))
      this.#sizes.delete(seq)
    }
  }

  async #writeHead(head = this.#head): Promise<void> {
    await write(this.#path(HEAD), signed(this.#key, 'head', JSON.stringify(head)))
  }

  /** Reads all valid runs, sealed runs first. Repairs the folder. */
  async #load(): Promise<Omit<OpenedJournal, 'journal'>> {
    const found = await readChain(this.#folder, this.#key)
    for (const name of found.drafts) await remove(this.#path(name))
    for (const name of found.unfit) await rename(this.#path(name), await nameAside(this.#path(name)))
    this.#head = found.head
    if (found.isHeadNew) await this.#writeHead()
    for (const { seq, bytes, record } of found.sealed) {
      this.#sizes.set(seq, bytes)
      this.#seqs.set(record.id, seq)
    }
    const sealed = found.sealed.map(({ record }) => record).filter(isRunRecord)
    const known = new Set(found.sealed.map(({ record: { id } }) => id))
    const over: RunRecord[] = []
    const left: RunRecord[] = []
    for (const record of found.open) {
      // The run was sealed, but the process ended before removing this file.
      if (known.has(record.id)) await remove(this.#openPath(record))
      else (isOver(record) ? over : left).push(record)
    }
    for (const record of over) await this.#seal(record)
    return { runs: [...sealed, ...over, ...left], problems: found.problems }
  }
}

interface ReadRun {
  readonly seq: number
  readonly hash: string
  readonly bytes: number
  readonly record: RunRecord
}

interface ReadChain {
  /** The head to continue from. */
  readonly head: Head
  /** True when the head on disk is missing or differs. */
  readonly isHeadNew: boolean
  readonly sealed: readonly ReadRun[]
  readonly open: readonly RunRecord[]
  readonly problems: readonly JournalProblem[]
  /** Names of files to put aside, and of incomplete files. */
  readonly unfit: readonly string[]
  readonly drafts: readonly string[]
}

/** Checks the journal of a folder without changes. Rejects when the folder cannot be read. */
export async function verifyRuns(folder: string, key: KeyObject): Promise<JournalCheck> {
  const { sealed, open: left, problems, isFirst } = await readChain(folder, key)
  const headless = isFirst ? [{ file: join(folder, HEAD), why: NO_HEAD }] : []
  return { runs: sealed.length, open: left.length, problems: [...headless, ...problems] }
}

/**
 * Reads the runs of a journal without changes: the sealed runs, the oldest first, then unfinished ones. `problems` as
 * in `verifyRuns`. Rejects when the folder cannot be read.
 */
export async function readRuns(
  folder: string,
  key: KeyObject,
): Promise<{ readonly runs: readonly RunRecord[]; readonly problems: readonly JournalProblem[] }> {
  const { sealed, open: left, problems } = await readChain(folder, key)
  const runs = sealed.map(({ record }) => record).filter(isRunRecord)
  const known = new Set(runs.map(({ id }) => id))
  return { runs: [...runs, ...left.filter(({ id }) => !known.has(id))], problems }
}

/** The record of an ended run in the journal. */
export interface KeptRecord {
  readonly id: string
  readonly name: string
  /** Milliseconds since the Unix epoch. */
  readonly endedAt: number
  readonly file: string
}

/** Returns the sealed runs of a journal whose hashes match, the oldest first. Empty without a journal. */
export async function keptRecords(folder: string, key: KeyObject): Promise<readonly KeptRecord[]> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
    return []
  })
  const kept: (KeptRecord & { readonly seq: number })[] = []
  for (const name of names.filter((one) => sealedName.test(one))) {
    const file = join(folder, name)
    const run = readSealed((await textIn(file, MAX_BYTES)) ?? '', key)
    if (typeof run === 'string' || fileOf(run.seq) !== name || !isRunRecord(run.record)) continue
    const { id, name: plan, endedAt, requestedAt } = run.record
    kept.push({ id, name: plan, endedAt: endedAt ?? requestedAt, file, seq: run.seq })
  }
  return kept.sort((a, b) => a.seq - b.seq).map(({ seq, ...record }) => record)
}

const GONE = 'is missing'
const NO_HEAD = 'is missing, or was not made with the key'

async function readChain(folder: string, key: KeyObject): Promise<ReadChain & { readonly isFirst: boolean }> {
  const names = (await readdir(folder)).sort()
  const problems: JournalProblem[] = []
  const sealed: (ReadRun & { readonly previous: string })[] = []
  const left: RunRecord[] = []
  const unfit: string[] = []
  const drafts: string[] = []
  const wrong = (name: string, why: string) => problems.push({ file: join(folder, name), why })
  for (const name of names) {
    const path = join(folder, name)
    const seq = sealedName.exec(name)?.[1]
    const id = openName.exec(name)?.[1]
    if (seq !== undefined) {
      const text = await textIn(path, MAX_BYTES)
      // The file is gone meanwhile: a running gateway may have removed the file.
      if (text === undefined) continue
      const run = readSealed(text, key)
      if (typeof run === 'string') wrong(name, run)
      else if (fileOf(run.seq) !== name) wrong(name, `contains run ${run.seq}`)
      else {
        if (!isRunRecord(run.record)) wrong(name, 'is sealed, but contains no record of a run')
        sealed.push(run)
      }
    } else if (id !== undefined) {
      const text = await textIn(path, MAX_RUN_BYTES + SIGNATURE_BYTES)
      if (text === undefined) continue
      const record = readOpen(text, id, key)
      if (typeof record !== 'string') left.push(record)
      else {
        wrong(name, record)
        unfit.push(name)
      }
    } else if (damagedName.test(name))
      wrong(name, 'was put aside when the journal was opened: its check failed')
    else if (draftName.test(name)) drafts.push(name)
  }
  sealed.sort((a, b) => a.seq - b.seq)
  const isFirst = !names.some((name) =>
    [sealedName, openName, damagedName, /^head\.json$/].some((of) => of.test(name)),
  )
  const head = readHead(await textIn(join(folder, HEAD), MAX_BYTES), key)
  const last = sealed.at(-1)
  const before = head?.damage ?? []
  for (const mark of before) wrong(HEAD, `records earlier damage: ${mark}`)
  const damage = [...before]
  if (head === undefined && !isFirst) {
    wrong(HEAD, NO_HEAD)
    if (names.includes(HEAD)) unfit.push(HEAD)
    damage.push(
      `the head ${NO_HEAD.replace('is ', 'was ')}: there may have been more runs than the ${sealed.length} up to run ${last?.seq ?? 0}`,
    )
  } else if (head !== undefined && last !== undefined && last.seq > head.seq + 1) {
    wrong(HEAD, `lists ${numbered(head.seq, 'run')}, but run ${last.seq} exists: this is an older head`)
    damage.push(
      `an older head, of ${numbered(head.seq, 'run')}, was found: there may have been more runs than ${last.seq}`,
    )
  }
  const gone = await goneIn(folder, head?.open ?? [], sealed)
  for (const id of gone) wrong(openFileOf(id), GONE)
  damage.push(...gone.map((id) => `the unfinished run ${id} was missing`))
  // A file that already has a problem above is not reported as missing.
  const told = new Set(problems.map(({ file }) => file))
  problems.push(
    ...chainProblems(folder, sealed, head).filter(({ file, why }) => why !== GONE || !told.has(file)),
  )
  // A run newer than the head: the process ended between the two writes.
  const newest = last !== undefined && last.seq > (head?.seq ?? 0) ? last : undefined
  const oldest = head?.oldest ?? sealed[0]?.seq ?? 1
  const known = newest ?? head ?? { seq: 0, hash: ROOT }
  const open = left.map(({ id }) => id).filter((id) => !sealed.some(({ record }) => record.id === id))
  return {
    head: { seq: known.seq, oldest, hash: known.hash, open, damage: damage.slice(0, MAX_MARKS) },
    isHeadNew: !isDeepStrictEqual(head?.open, open) || damage.length > before.length,
    isFirst,
    sealed,
    open: left,
    problems,
    unfit,
    drafts,
  }
}

/** Returns the ids of runs in `open` that are now neither in the folder nor sealed. */
async function goneIn(
  folder: string,
  open: readonly string[],
  sealed: readonly ReadRun[],
): Promise<readonly string[]> {
  const gone: string[] = []
  for (const id of open) {
    if (sealed.some(({ record }) => record.id === id)) continue
    // Checks the disk again, because a running gateway may have begun the run after `readdir`.
    if ((await textIn(join(folder, openFileOf(id)), 0)) === undefined) gone.push(id)
  }
  return gone
}

function chainProblems(
  folder: string,
  sealed: readonly (ReadRun & { readonly previous: string })[],
  head: Head | undefined,
): JournalProblem[] {
  const problems: JournalProblem[] = []
  const [first] = sealed
  let expected = head?.oldest ?? first?.seq ?? 1
  let before: Pick<ReadRun, 'seq' | 'hash'> | undefined
  for (const run of sealed) {
    for (; expected < run.seq; expected++) problems.push({ file: join(folder, fileOf(expected)), why: GONE })
    if (before?.seq !== run.seq - 1 && head?.seq === run.seq - 1) before = head
    if (before !== undefined && before.seq === run.seq - 1 && run.previous !== before.hash)
      problems.push({ file: join(folder, fileOf(run.seq)), why: `does not continue run ${before.seq}` })
    before = run
    expected = run.seq + 1
  }
  for (; expected <= (head?.seq ?? 0); expected++)
    problems.push({ file: join(folder, fileOf(expected)), why: GONE })
  const end = sealed.find(({ seq }) => seq === head?.seq)
  if (head !== undefined && end !== undefined && end.hash !== head.hash)
    problems.push({ file: join(folder, fileOf(end.seq)), why: 'is not the run listed in the head' })
  return problems
}

function readSealed(text: string, key: KeyObject): (ReadRun & { readonly previous: string }) | string {
  const [, hash, json] = /^\{"hash":"([0-9a-f]{64})",\n"run":(\{.*\})\}\n$/s.exec(text) ?? []
  if (hash === undefined || json === undefined) return 'is no sealed run'
  if (!isSame(hash, hashOf(key, json))) return 'was changed: its hash does not match'
  const run = JSON.parse(json) as Sealed
  const { seq, previous, record } = run
  return { seq, previous, hash, bytes: Buffer.byteLength(text), record }
}

/** Returns an unfinished run, or the problem. */
function readOpen(text: string, id: string, key: KeyObject): RunRecord | string {
  const json = signedIn(key, 'open', text)
  if (json === undefined) return 'was not made with the key'
  const record = parseJson(json)
  if (!isRunRecord(record)) return 'is no record of a run'
  return record.id === id ? record : `contains run ${record.id}`
}

function readHead(text: string | undefined, key: KeyObject): Head | undefined {
  const head = parseJson(signedIn(key, 'head', text) ?? '')
  if (!isObject(head)) return undefined
  const { seq, oldest, hash, open = [], damage = [] } = head as Partial<Head>
  return seq === undefined || oldest === undefined || hash === undefined
    ? undefined
    : { seq, oldest, hash, open, damage }
}

/** Maximum number of bytes that a signature adds to a document. */
const SIGNATURE_BYTES = 200

/** Returns a document with its HMAC. The HMAC includes the kind, so a document cannot pass as another kind. */
const signed = (key: KeyObject, kind: 'head' | 'open', json: string): string =>
  `{"mac":"${hashOf(key, `${kind}\n${json}`)}",\n"${kind}":${json}}\n`

/** Returns the document of a text signed with the key; undefined for any other text. */
function signedIn(key: KeyObject, kind: 'head' | 'open', text = ''): string | undefined {
  const [, mac, found, json] = /^\{"mac":"([0-9a-f]{64})",\n"(head|open)":(\{.*\})\}\n$/s.exec(text) ?? []
  if (mac === undefined || json === undefined || found !== kind) return undefined
  return isSame(mac, hashOf(key, `${kind}\n${json}`)) ? json : undefined
}

const hashOf = (key: KeyObject, text: string): string =>
  createHmac('sha256', key).update('experiment\n').update(text).digest('hex')

const isSame = (a: string, b: string): boolean =>
  a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b))

function limited(text: string): string {
  if (Buffer.byteLength(text) > MAX_RUN_BYTES)
    throw new Error(`the record of the run takes more than ${MAX_RUN_BYTES} bytes`)
  return text
}

/** Returns the text of a file of at most `maxBytes`; empty for larger files and other kinds; undefined if missing. */
async function textIn(path: string, maxBytes: number): Promise<string | undefined> {
  try {
    // Reads regular files only, because a pipe could block the reader.
    const stats = await lstat(path)
    return stats.isFile() && stats.size <= maxBytes ? await readFile(path, 'utf8') : ''
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Writes and syncs a draft, then renames: the file always has the complete old or new text. */
async function write(path: string, text: string): Promise<void> {
  const file = await open(`${path}.new`, 'w', 0o600)
  try {
    await file.writeFile(text)
    await file.datasync()
  } finally {
    await file.close()
  }
  await rename(`${path}.new`, path)
}

async function remove(path: string): Promise<void> {
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
}
