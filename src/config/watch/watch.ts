import { dirname } from 'node:path'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { fingerprint, type Fingerprint } from './fingerprint.ts'
import { FolderWatch } from './folder-watch.ts'

/** How long files must be quiet before they are looked at, so that a half-written one is rarely met. */
const QUIET_MS = 100

/** How long unrest can put the look off. */
const MAX_UNREST_MS = 1_000

/** How often files are looked at in any case: some file systems tell nothing. */
const POLL_MS = 5_000

export interface FileWatch {
  /** Resolves once the files were looked at for the first time; later changes are noticed. */
  readonly ready: Promise<void>
  close(): void
}

/**
 * Calls `onChange` when the content of a file has changed: written in place, replaced by renaming, deleted,
 * created again, or reached through a link that was swapped, as a mounted ConfigMap does. A file that joins
 * `getFiles` later counts as seen from its first look on.
 */
export function watchFiles(
  getFiles: () => readonly string[],
  onChange: () => void,
  { clock }: { clock: Clock },
): FileWatch {
  const folders = new FolderWatch(() => stir())
  let seen = new Map<string, Fingerprint>()
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
    const files = getFiles()
    // Folders first: what changes while we look is then looked at again.
    folders.follow(foldersOf(files, seen))
    const found = await Promise.all(files.map((file) => fingerprint(file, seen.get(file))))
    if (closed) return
    const now = new Map(files.map((file, index) => [file, found[index] as Fingerprint]))
    const changed = [...now].some(([file, { content }]) => content !== (seen.get(file)?.content ?? content))
    seen = now
    folders.follow(foldersOf(files, seen))
    if (changed) onChange()
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
