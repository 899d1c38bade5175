import { isDeepStrictEqual } from 'node:util'
import type { Cancel, Clock } from '../../mesh/clock.ts'
import { JournalFile } from '../journal/file.ts'
import type { Journal } from '../journal/journal.ts'
import { watchKillFile } from '../kill/kill-file.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import type { ChaosConfig } from '../plan/schema.ts'

export interface AttachmentParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly kill: KillSwitch
  /** Hears when the journal cannot be written. */
  readonly onError: (why: string) => void
}

/** What the engine has on the disk: the journal's file and the kill file, as the config has them. */
export class Attachments {
  readonly #parts: AttachmentParts
  #journal: ChaosConfig['journal'] | undefined
  #file: JournalFile | undefined
  #killFile: string | undefined
  #unwatch: Cancel = () => undefined

  constructor(parts: AttachmentParts) {
    this.#parts = parts
  }

  apply({ journal, killFile }: Pick<ChaosConfig, 'journal' | 'killFile'>): void {
    const { clock, kill } = this.#parts
    if (!isDeepStrictEqual(journal, this.#journal)) this.#open(journal)
    if (killFile === this.#killFile) return
    this.#killFile = killFile
    this.#unwatch()
    this.#unwatch = killFile === undefined ? () => undefined : watchKillFile(killFile, kill, clock)
  }

  /** Resolves when everything is written. */
  close(): Promise<void> {
    this.#unwatch()
    return this.#file?.close() ?? Promise.resolve()
  }

  #open(config: ChaosConfig['journal']): void {
    const { clock, journal, onError } = this.#parts
    const { file: path, maxSize, keep } = config
    const old = this.#file
    this.#journal = config
    this.#file =
      path === undefined ? undefined : new JournalFile({ path, maxSize, keep, clock, onError, after: old })
    journal.sink = this.#file
  }
}
