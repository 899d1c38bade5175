import { type Paint, paintFor, plain } from '../../telemetry/colours.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'
import type { Output } from './arguments.ts'

export interface Screen {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

/** Moves to the left edge, and erases the line. */
const CLEAR = '\r\u001b[2K'

/** Moves to the upper left corner, and erases the screen. */
const WIPE = '\u001b[H\u001b[2J'

/** Default width of a terminal, in characters. */
const WIDTH = 80

/** Makes control characters visible, except the line breaks of the text. */
function shown(text: string, paint: Paint): string {
  const show = paint === plain ? (line: string) => printable(line, Infinity) : printablePainted
  return text.split('\n').map(show).join('\n')
}

/**
 * Standard output and standard error of a command. On a terminal, a status line stays below all other lines: it is
 * removed during a write, and restored below.
 */
export class Terminal implements Output {
  readonly paint: Paint
  readonly width: number | undefined
  readonly status: Output['status']
  readonly page: Output['page']
  /** True after the first failed write to standard output: it has no reader any more. */
  isClosed = false
  readonly #stdout: Screen
  readonly #stderr: Screen
  #line: string | undefined

  constructor(stdout: Screen, stderr: Screen, env: Readonly<Record<string, string | undefined>>) {
    this.#stdout = stdout
    this.#stderr = stderr
    this.paint = paintFor(stdout.isTTY === true, env)
    this.width = stdout.columns || undefined
    if (stdout.isTTY === true && env.TERM !== 'dumb')
      this.page = (lines) => this.#above(stdout, `${WIPE}${shown(lines.join('\n'), this.paint)}\n`)
    if (stderr.isTTY === true && env.TERM !== 'dumb') this.status = (line) => this.#show(line)
  }

  stdout(line: string): void {
    this.#above(this.#stdout, `${shown(line, this.paint)}\n`)
  }

  stderr(line: string): void {
    this.#above(this.#stderr, `${shown(line, plain)}\n`)
  }

  /**
   * A stream for a log on a terminal: it writes complete lines above the status line, with control characters made
   * visible.
   */
  get log(): Screen {
    return { isTTY: true, write: (text) => this.#above(this.#stdout, text) }
  }

  #above(stream: Screen, text: string): void {
    const line = this.#line
    if (line !== undefined) this.#stderr.write(CLEAR)
    stream.write(text)
    if (line !== undefined) this.#stderr.write(line)
  }

  #show(text: string | undefined): void {
    const line = text && printable(text, (this.#stderr.columns || WIDTH) - 2)
    if (line === this.#line) return
    this.#line = line
    this.#stderr.write(`${CLEAR}${line ?? ''}`)
  }
}
