import { closeSync, constants, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { makeFolder } from '../../units/folder.ts'

/** A kill, as recorded for the next process. */
export interface RecordedKill {
  readonly by: string
  readonly why: string
  /** In milliseconds since the Unix epoch. */
  readonly at: number
}

/**
 * Size of the file, in bytes: constant, and written in place, so a kill needs no space on a full disk. The words of a
 * kill are cut to fit even if every character needs an escape.
 */
const SIZE = 2_048
const LONGEST_BY = 64
const LONGEST_WHY = 200

/** Time between attempts to write, in milliseconds. */
const RETRY_MS: Millis = 1_000

/**
 * Records the state of the kill switch in a file, for the next process. Each write reaches the operating system at
 * once. The record survives any end of the process, but perhaps not a power loss seconds later. Never throws.
 */
export class KillRecord {
  readonly #path: string
  readonly #clock: Clock
  #problem: string | undefined
  #reserved = false
  #cancel: Cancel = () => undefined

  constructor(path: string, clock: Clock) {
    this.#path = path
    this.#clock = clock
  }

  /** Why the file does not show the present state; undefined while the file is correct. */
  get problem(): string | undefined {
    return this.#problem
  }

  /**
   * Returns the recorded kill; undefined when there is none. An unreadable file counts as a kill, because it may
   * contain a kill.
   */
  read(): RecordedKill | undefined {
    let text
    try {
      text = readFileSync(this.#path, 'utf8')
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      return code === 'ENOENT' ? undefined : this.#unreadable(code ?? message)
    }
    const record = parseJson(text)
    if (!isObject(record) || !('killed' in record)) return this.#unreadable('it holds no record')
    const { killed } = record
    if (killed === null) return undefined
    if (!isObject(killed)) return this.#unreadable('it holds no record')
    return { by: String(killed.by), why: String(killed.why), at: Number(killed.at) || 0 }
  }

  /** Records a kill, or for undefined the absence of a kill; tries again every second while writing fails. */
  write(kill: RecordedKill | undefined): void {
    this.#cancel()
    this.#problem = undefined
    try {
      this.#overwrite(textOf(kill))
    } catch (error) {
      this.#problem = `${this.#path} cannot be written: ${(error as Error).message}`
      this.#cancel = this.#clock.after(RETRY_MS, () => this.write(kill))
    }
  }

  /** Reserves the space for a future kill, while there is no kill. */
  reserve(): void {
    if (this.#reserved) return
    this.#reserved = true
    if (this.read() === undefined) this.write(undefined)
  }

  /** Removes an empty record at the end of the process. */
  close(): void {
    this.#cancel()
    if (this.#reserved && this.#problem === undefined && this.read() === undefined)
      rmSync(this.#path, { force: true })
  }

  #unreadable(why: string): RecordedKill {
    return {
      by: 'boot',
      why: `${this.#path} cannot be read (${why}), so it counts as a kill`,
      at: this.#clock.wall(),
    }
  }

  #overwrite(text: string): void {
    makeFolder(dirname(this.#path), 0o700)
    const file = openSync(
      this.#path,
      constants.O_WRONLY | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0),
      0o600,
    )
    try {
      const written = writeSync(file, text, 0)
      if (written < SIZE) throw new Error(`only ${written} of ${SIZE} bytes were written`)
    } finally {
      closeSync(file)
    }
  }
}

function textOf(kill: RecordedKill | undefined): string {
  const killed = kill && {
    by: kill.by.slice(0, LONGEST_BY),
    why: kill.why.slice(0, LONGEST_WHY),
    at: kill.at,
  }
  const json = JSON.stringify({ killed: killed ?? null })
  return `${json}${' '.repeat(SIZE - 1 - Buffer.byteLength(json))}\n`
}
