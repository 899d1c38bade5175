import { isDeepStrictEqual } from 'node:util'
import { type Paint, paintFor, plain } from '../../telemetry/colours.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'
import type { Output, StatusText } from './arguments.ts'

export interface Screen {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
  write(text: string): unknown
}

/** Moves to the left edge, and erases the line. */
const CLEAR = '\r\u001b[2K'

/** Moves to the line above, and erases that line. */
const CLEAR_ABOVE = '\u001b[1A\u001b[2K'

/** Cuts lines at the edge, even lines of wide characters, and ends this cutting. */
const CUT = '\u001b[?7l'
const WRAP = '\u001b[?7h'

/** Moves to the upper left corner, and erases the screen. */
const WIPE = '\u001b[H\u001b[2J'

/** Default size of a terminal, in characters and lines. */
const WIDTH = 80
const HEIGHT = 24

/** Makes control characters visible, except the line breaks of the text. */
function shown(text: string, paint: Paint): string {
  const show = paint === plain ? (line: string) => printable(line, Infinity) : printablePainted
  return text.split('\n').map(show).join('\n')
}

/**
 * Standard output and standard error of a command. On a terminal, status lines stay below all other lines: they are
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
  /** The status lines on the screen. */
  #lines: readonly string[] = []

  constructor(stdout: Screen, stderr: Screen, env: Readonly<Record<string, string | undefined>>) {
    this.#stdout = stdout
    this.#stderr = stderr
    this.paint = paintFor(stdout.isTTY === true, env)
    this.width = stdout.columns || undefined
    if (stdout.isTTY === true && env.TERM !== 'dumb')
      this.page = (lines) => this.#above(stdout, `${WIPE}${shown(lines.join('\n'), this.paint)}\n`)
    if (stderr.isTTY === true && env.TERM !== 'dumb') this.status = (lines) => this.#show(lines)
  }

  get height(): number {
    return this.#stderr.rows || HEIGHT
  }

  stdout(line: string): void {
    this.#above(this.#stdout, `${shown(line, this.paint)}\n`)
  }

  stderr(line: string): void {
    this.#above(this.#stderr, `${shown(line, plain)}\n`)
  }

  /**
   * A stream for a log on a terminal: it writes complete lines above the status lines, with control characters made
   * visible.
   */
  get log(): Screen {
    return { isTTY: true, write: (text) => this.#above(this.#stdout, text) }
  }

  #above(stream: Screen, text: string): void {
    const lines = this.#lines
    if (lines.length > 0) this.#stderr.write(clearing(lines))
    stream.write(text)
    if (lines.length > 0) this.#stderr.write(drawn(lines))
  }

  #show(text: StatusText): void {
    const columns = (this.#stderr.columns || WIDTH) - 2
    // With as many lines as the window, the first line would scroll away, out of reach of the next removal.
    const lines = [text ?? []]
      .flat()
      .slice(0, this.height - 1)
      .map((line) => printable(line, columns))
    if (isDeepStrictEqual(lines, this.#lines)) return
    const before = this.#lines
    this.#lines = lines
    this.#stderr.write(`${clearing(before)}${drawn(lines)}`)
  }
}

/** Returns the text that removes status lines from the screen; the cursor is at the end of the last line. */
const clearing = (lines: readonly string[]) => `${CLEAR}${CLEAR_ABOVE.repeat(Math.max(0, lines.length - 1))}`

const drawn = (lines: readonly string[]) =>
  lines.length > 1 ? `${CUT}${lines.join('\n')}${WRAP}` : lines.join('')
