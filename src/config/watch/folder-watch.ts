import { watch, type FSWatcher } from 'node:fs'

/** Watches folders: a file that is replaced by renaming, or through a link, is only seen from its folder. */
export class FolderWatch {
  readonly #watchers = new Map<string, FSWatcher>()
  readonly #onEvent: () => void

  constructor(onEvent: () => void) {
    this.#onEvent = onEvent
  }

  /** Watches exactly `folders` from now on. */
  follow(folders: ReadonlySet<string>): void {
    for (const folder of this.#watchers.keys()) if (!folders.has(folder)) this.#drop(folder)
    for (const folder of folders) if (!this.#watchers.has(folder)) this.#add(folder)
  }

  close(): void {
    for (const folder of this.#watchers.keys()) this.#drop(folder)
  }

  #add(folder: string): void {
    try {
      const watcher = watch(folder, { persistent: false }, this.#onEvent)
      watcher.on('error', () => this.#drop(folder))
      this.#watchers.set(folder, watcher)
    } catch {
      // The folder is not there, or the system has no watches left: whoever follows looks by itself and asks again.
      this.#drop(folder)
    }
  }

  #drop(folder: string): void {
    this.#watchers.get(folder)?.close()
    this.#watchers.delete(folder)
  }
}
