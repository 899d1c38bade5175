import { type FSWatcher, watch } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { digestOf, readText, unreadable } from '../files/read-text.ts'

/** How long files must not change before a check, in milliseconds, so that half-written files are rarely read. */
const QUIET_MS = 100

/** Maximum time for which further changes delay a check, in milliseconds. */
const MAX_UNREST_MS = 1_000

/** Interval of checks without an event, in milliseconds, because some file systems send no events. */
const POLL_MS = 5_000

interface FileWatch {
  /** Resolves after the first check of the files; later changes are noticed. */
  readonly ready: Promise<void>
  close(): void
}

/**
 * Calls `onChange` when the content of a file has changed. Notices files that are written in place, replaced by
 * renaming, deleted or created again, and links with a new target, as in a mounted ConfigMap.
 *
 * `getFiles` returns the `digestOf` each file's last read content, by path. Any other content is a change, even if the
 * file changed before the first check. `onChange` reads the files again; a further check follows, because they may have
 * changed meanwhile.
 */
export function watchFiles(
  getFiles: () => ReadonlyMap<string, string>,
  onChange: () => Promise<unknown>,
  { clock }: { clock: Clock },
): FileWatch {
  const folders = new FolderWatch(() => stir())
  let seen = new Map<string, Fingerprint>()
  /** The difference already reported for each path. Prevents repeated reports when `onChange` cannot read the file. */
  const told = new Map<string, string>()
  let closed = false
  let looking: Promise<void> | undefined
  let again = false
  let restlessSince: Millis | undefined
  let cancelQuiet: Cancel | undefined
  let cancelPoll: Cancel | undefined

  /** Schedules a check after a change in a watched folder, once the folder has not changed for `QUIET_MS`. */
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
    // Watches the folders first, so changes during this check cause another check.
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
    // The file was added during this check, so the next check covers it.
    if (now === undefined) return false
    const { content } = now
    // The content of a pipe is unknown, so a pipe counts as a change only if it replaces a file with known content.
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

/** Returns the folders to watch for changes of `files`: their own folders, and the folders of link targets. */
function foldersOf(files: readonly string[], seen: ReadonlyMap<string, Fingerprint>): Set<string> {
  return new Set(
    files.flatMap((file) => [file, seen.get(file)?.realPath ?? file]).map((file) => dirname(file)),
  )
}

/** The state of a file at the last check. */
interface Fingerprint {
  /** Text of file identity, size and times. If it is unchanged, the content is unchanged too. */
  readonly cheap: string
  /** The `digestOf` its content; undefined for a pipe or a device, since reading would consume the content. */
  readonly content: string | undefined
  /** The real path, all links followed; undefined for a missing file. */
  readonly realPath: string | undefined
}

/** Resolves to the state of `file`. Reads the content only if it may have changed since `last`. Never rejects. */
async function fingerprint(file: string, last: Fingerprint | undefined): Promise<Fingerprint> {
  try {
    // A pipe passed to the process, for example /dev/fd/63, has no path of its own.
    const realPath = await realpath(file).catch(() => file)
    const stats = await stat(realPath, { bigint: true })
    const cheap = [realPath, stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    if (cheap === last?.cheap) return last
    const content = stats.isFile() ? digestOf(await readText(realPath)) : undefined
    return { cheap, content, realPath }
  } catch (error) {
    // A missing or unreachable file is also a state; the next check may find another state.
    const content = digestOf(unreadable(error))
    return { cheap: content, content, realPath: undefined }
  }
}

/** Watches folders, because only the folder reports a file that is replaced by renaming or through a link. */
class FolderWatch {
  readonly #watchers = new Map<string, { readonly watcher: FSWatcher; readonly identity: string }>()
  readonly #onEvent: () => void
  #closed = false

  constructor(onEvent: () => void) {
    this.#onEvent = onEvent
  }

  /**
   * Watches exactly `folders` from now on. If a new folder has replaced a watched folder, watches the new folder. Never
   * rejects.
   */
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
      // The folder is missing, or the system has no watches left. The caller polls anyway, and calls `follow` again.
      this.#drop(folder)
    }
  }

  #drop(folder: string): void {
    this.#watchers.get(folder)?.watcher.close()
    this.#watchers.delete(folder)
  }
}

/**
 * Resolves to a text that changes when another folder replaces a folder. Needed because a watcher gets no event when
 * its folder is moved or deleted.
 */
const identityOf = (folder: string): Promise<string> =>
  stat(folder).then(
    ({ dev, ino }) => `${dev} ${ino}`,
    () => '',
  )
