import { clip } from '../../units/clip.ts'

/** How many lines of standard error are kept, and how much of each, in characters. */
const KEPT_LINES = 20
const KEPT_CHARACTERS = 1_000

/** Lines that name a cause. What stands below them is where it happened, and with what. */
const CAUSE =
  /\b(?:error|exception|fatal|panic|missing|required|cannot|could not|not found|denied|invalid)\b|Error:/i

/** What runtimes and package managers write below the cause. */
const POSTSCRIPT = /^(?:\s|Node\.js v|\}|npm (?:ERR!|error) A complete log)/

/** The last lines that a process wrote to its standard error. */
export class Complaints {
  readonly #lines: string[] = []

  add(line: string): void {
    if (line.trim() === '') return
    this.#lines.push(clip(line, KEPT_CHARACTERS))
    if (this.#lines.length > KEPT_LINES) this.#lines.shift()
  }

  /** The line that says most likely why the process ended; empty when there is none. */
  get told(): string {
    const lines = this.#lines.filter((line) => !POSTSCRIPT.test(line))
    return lines.findLast((line) => CAUSE.test(line)) ?? lines.at(-1) ?? this.#lines.at(-1) ?? ''
  }
}
