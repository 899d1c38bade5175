import { type FSWatcher, watch } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { digestOf, readText, unreadable } from '../files/read-text.ts'

/** How long files must be quiet before they are looked at, so that a half-written one is rarely met. */
const QUIET_MS = 100

/** How long unrest can put the look off. */
const MAX_UNREST_MS = 1_000

/** How often files are looked at in any case: some file systems tell nothing. */
const POLL_MS = 5_000

interface FileWatch {
  /** Resolves once the files were looked at for the first time; later changes are noticed. */
  readonly ready: Promise<void>
  close(): void
}

/**
 * Calls `onChange` when the content of a file has changed: written in place, replaced by renaming, deleted,
 * created again, or reached through a link that was swapped, as a mounted ConfigMap does.
 *
 * `getFiles`: by path, the `digestOf` what was read of it last: whatever is there instead is a change, also from before the first
 * look. `onChange` reads the files again; what is there when it is done is looked at once more, for it may be another content again.
 */
export function watchFiles(
  getFiles: () => ReadonlyMap<string, string>,
  onChange: () => Promise<unknown>,
  { clock }: { clock: Clock },
): FileWatch {
  const folders = new FolderWatch(() => stir())
  let seen = new Map<string, Fingerprint>()
  /** By path, of what content that was there instead of which it has been told: not all can be read as it is found. */
  const told = new Map<string, string>()
  let closed = false
  let looking: Promise<void> | undefined
  let again = false
  let restlessSince: Millis | undefined
  let cancelQuiet: Cancel | undefined
  let cancelPoll: Cancel | undefined

  /** Something moved in a watched folder: looks when it has come to rest. */
  function stir(): void {
    if (closed) return
    restlessSince ??= clock.now()
    cancelQuiet?.()
    const patience = restlessSince + MAX_UNREST_MS - clock.now()
    cancelQuiet = clock.after(Math.max(0, Math.min(QUIET_MS, patience)), () => {
      restlessSince = undefined
      void look()
    })
  }

  async function look(): Promise<void> {
    if (closed) return
    if (looking !== undefined) {
      again = true
      return looking
    }
    cancelPoll?.()
    looking = compare()
    await looking
    looking = undefined
    if (closed) return
    cancelPoll = clock.after(POLL_MS, () => void look())
    if (again) {
      again = false
      stir()
    }
  }

  async function compare(): Promise<void> {
    const files = [...getFiles().keys()]
    // Folders first: what changes while we look is then looked at again.
    await folders.follow(foldersOf(files, seen))
    const found = await Promise.all(files.map((file) => fingerprint(file, seen.get(file))))
    if (closed) return
    const now = new Map(files.map((file, index) => [file, found[index] as Fingerprint]))
    const changed = [...getFiles()].filter(([file, read]) => isNews(file, now.get(file), read))
    seen = now
    await folders.follow(foldersOf(files, seen))
    if (!closed && changed.length > 0) void onChange().then(stir)
  }

  function isNews(file: string, now: Fingerprint | undefined, read: string): boolean {
    // A file that has just joined: it is looked at next time.
    if (now === undefined) return false
    const { content } = now
    // The content of a pipe is unknown. A pipe is news only in place of a file with known content.
    if (content === undefined) return seen.get(file)?.content !== undefined
    const difference = content === read ? '' : `${content} instead of ${read}`
    const isNew = difference !== '' && told.get(file) !== difference
    told.set(file, difference)
    return isNew
  }

  return {
    ready: look(),
    close() {
      closed = true
      cancelQuiet?.()
      cancelPoll?.()
      folders.close()
    },
  }
}

/** Where changes of `files` show: their own folders, and those that links lead to. */
function foldersOf(files: readonly string[], seen: ReadonlyMap<string, Fingerprint>): Set<string> {
  return new Set(
    files.flatMap((file) => [file, seen.get(file)?.realPath ?? file]).map((file) => dirname(file)),
  )
}

/** The state of a file when it was last looked at. */
interface Fingerprint {
  /** Changes whenever the content may have. Cheap to find out. */
  readonly cheap: string
  /** The `digestOf` what is in it; undefined for a pipe or a device, as reading it would take that. */
  readonly content: string | undefined
  /** Where the file really is, all links followed; undefined when it is not there. */
  readonly realPath: string | undefined
}

/** Looks at `file`, and into it only when it may have changed since `last`. Never rejects. */
async function fingerprint(file: string, last: Fingerprint | undefined): Promise<Fingerprint> {
  try {
    // A pipe that the process was given, such as /dev/fd/63, has no path of its own.
    const realPath = await realpath(file).catch(() => file)
    const stats = await stat(realPath, { bigint: true })
    const cheap = [realPath, stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    if (cheap === last?.cheap) return last
    const content = stats.isFile() ? digestOf(await readText(realPath)) : undefined
    return { cheap, content, realPath }
  } catch (error) {
    // Gone or out of reach: that is a state too, and the next look may find another.
    const content = digestOf(unreadable(error))
    return { cheap: content, content, realPath: undefined }
  }
}

/** Watches folders: a file that is replaced by renaming, or through a link, is only seen from its folder. */
class FolderWatch {
  readonly #watchers = new Map<string, { readonly watcher: FSWatcher; readonly identity: string }>()
  readonly #onEvent: () => void
  #closed = false

  constructor(onEvent: () => void) {
    this.#onEvent = onEvent
  }

  /** Watches exactly `folders` from now on: also what is there now in place of a folder that was watched. Never rejects. */
  async follow(folders: ReadonlySet<string>): Promise<void> {
    const identities = await Promise.all(
      [...folders].map(async (folder) => [folder, await identityOf(folder)] as const),
    )
    for (const folder of this.#watchers.keys()) if (!folders.has(folder)) this.#drop(folder)
    for (const [folder, identity] of identities) {
      if (this.#watchers.get(folder)?.identity === identity || this.#closed) continue
      this.#drop(folder)
      this.#add(folder, identity)
    }
  }

  close(): void {
    this.#closed = true
    for (const folder of this.#watchers.keys()) this.#drop(folder)
  }

  #add(folder: string, identity: string): void {
    try {
      const watcher = watch(folder, { persistent: false }, this.#onEvent)
      watcher.on('error', () => this.#drop(folder))
      this.#watchers.set(folder, { watcher, identity })
    } catch {
      // The folder is not there, or the system has no watches left: whoever follows looks by itself and asks again.
      this.#drop(folder)
    }
  }

  #drop(folder: string): void {
    this.#watchers.get(folder)?.watcher.close()
    this.#watchers.delete(folder)
  }
}

/** Differs when another folder has taken the place of one; of one that is moved away or deleted its watcher hears nothing. */
const identityOf = (folder: string): Promise<string> =>
  stat(folder).then(
    ({ dev, ino }) => `${dev} ${ino}`,
    () => '',
  )
