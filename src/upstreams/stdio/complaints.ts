import { clipWords } from '../../units/clip.ts'

/** How much of each line is kept, in characters. */
const KEPT_CHARACTERS = 1_000

/** A line that names a cause counts until so many further lines have come: a long stack may stand below the line. */
const CAUSE_HOLDS_FOR = 200

/** Lines that name a cause. What stands below them is where it happened, and with what. */
const CAUSE =
  /\b(?:error|exception|fatal|panic|missing|required|cannot|could not|not found|denied|invalid)\b|Error:/i

/** What runtimes and package managers write below the cause. */
const POSTSCRIPT = /^(?:\s|Node\.js v|\}|npm (?:ERR!|error) A complete log)/

/** The latest complaints of a process on its standard error. */
export class Complaints {
  #cause = ''
  #sinceCause = 0
  /** The last line that is no postscript, and the last line of all. */
  #line = ''
  #last = ''

  add(line: string): void {
    if (line.trim() === '') return
    this.#last = clipWords(line, KEPT_CHARACTERS)
    this.#sinceCause++
    if (POSTSCRIPT.test(line)) return
    this.#line = this.#last
    if (!CAUSE.test(this.#last)) return
    this.#cause = this.#last
    this.#sinceCause = 0
  }

  /** The line that says most likely why the process ended; empty when there is none. */
  get told(): string {
    if (this.#cause !== '' && this.#sinceCause <= CAUSE_HOLDS_FOR) return this.#cause
    return this.#line || this.#last
  }
}
