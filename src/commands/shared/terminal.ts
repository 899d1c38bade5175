import { type Paint, paintFor, plain } from '../../telemetry/colours.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'
import type { Output } from './arguments.ts'

/** As much of a stream as a terminal needs. */
export interface Screen {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

/** To the left edge, and nothing to the right of it. */
const CLEAR = '\r\u001b[2K'

/** To the upper left corner, and nothing on the screen. */
const WIPE = '\u001b[H\u001b[2J'

/** Width of a terminal that does not say it, in characters. */
const WIDTH = 80

/** A text of several lines, all of which we have written: whatever slipped into one of them is made visible. */
function shown(text: string, paint: Paint): string {
  const show = paint === plain ? (line: string) => printable(line, Infinity) : printablePainted
  return text.split('\n').map(show).join('\n')
}

/**
 * Standard output and standard error of a command. Where standard error is a terminal, one line below all others can say
 * how things stand: it goes while another is written, and comes back below it.
 */
export class Terminal implements Output {
  readonly paint: Paint
  readonly width: number | undefined
  readonly status: Output['status']
  readonly page: Output['page']
  /** Whether nobody reads standard output any more: set once a write has met that. */
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

  /** A stream whose whole lines get the same treatment: a log's, on a terminal. They are printable already. */
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
