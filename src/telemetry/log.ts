import pino from 'pino'
import { type Cancel, type Millis, systemClock } from '../mesh/clock.ts'
import { paintFor } from './colours.ts'
import { printableJson } from './printable.ts'
import { type LogEntry, terminalLog } from './terminal-log.ts'

export type Log = pino.Logger

/** Where a log goes; `isTTY` where a person reads it. */
export interface LogOutput {
  readonly isTTY?: boolean
  write(text: string): unknown
}

/** Lines that are no warnings wait for others for so long, in milliseconds, or until there are so many characters of them. */
const GATHER_MS: Millis = 20
const GATHER_LENGTH = 16 * 1024

/** Most of the log that waits while its stream takes none of it, in bytes. */
const MAX_WAITING = 1024 ** 2

/** From this level on of pino's a line is written at once, with those before it. */
const WARN = 40

/** After so long a write that failed is tried again, and so long the last one is tried when the process exits, in milliseconds. */
const AGAIN_MS: Millis = 100
const LAST_MS: Millis = 2_000

/**
 * A standard stream for lines: several in one write, which costs as much as half of a call. What is written last before the process exits
 * is not lost, if it is taken within two seconds; one that is killed loses what it logged in its last 20 ms, but for warnings. A disk that is
 * full, or a pipe that nobody reads, stops nothing: so much waits for room, what goes beyond it is lost, and `again` hears how many lines, once it
 * is written again.
 */
function standardStream(fd: 1 | 2, again: (lost: number) => void) {
  let lost = 0
  let failure: string | undefined
  let cancelRetry: Cancel | undefined
  // As pino does it: at once, by the file descriptor. To try again at once, as it does by default, would stop the process.
  const sink = pino.destination({ dest: fd, sync: true, maxLength: MAX_WAITING, retryEAGAIN: () => false })
  sink.on('error', ({ code }: NodeJS.ErrnoException) => {
    failure = code
    cancelRetry ??= systemClock.after(AGAIN_MS, () => {
      cancelRetry = undefined
      write('')
    })
  })
  sink.on('drop', (dropped: string) => {
    lost += dropped.split('\n').length - 1
    // Without more to write it would not try again.
    sink.write('')
  })
  const write = (text: string) => {
    failure = undefined
    sink.write(text)
    if (failure !== undefined || lost === 0) return
    const count = lost
    lost = 0
    again(count)
  }
  let lines = ''
  let cancel: Cancel | undefined
  const flush = () => {
    cancel?.()
    cancel = undefined
    if (lines === '') return
    const text = lines
    lines = ''
    write(text)
  }
  process.once('exit', () => {
    flush()
    const until = systemClock.now() + LAST_MS
    while (failure === 'EAGAIN' && systemClock.now() < until) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
      write('')
    }
  })
  return {
    // Has pino say in `lastLevel` of which level a line is.
    [pino.symbols.needsMetadataGsym]: true as const,
    lastLevel: 0,
    write(line: string) {
      lines += printableJson(line)
      if (this.lastLevel >= WARN || lines.length >= GATHER_LENGTH) flush()
      else cancel ??= systemClock.after(GATHER_MS, flush)
    },
  }
}

/**
 * The process's logger: lines for people on a terminal, JSON lines otherwise, on standard output unless told otherwise.
 * No logged character is one that a terminal obeys or that begins a line.
 * `level` is one of pino's: trace, debug, info, warn, error, fatal, silent.
 */
export function createLog(level: string, output: LogOutput = process.stdout): Log {
  const options: pino.LoggerOptions = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  if (!output.isTTY) {
    const fd = output === process.stdout ? 1 : output === process.stderr ? 2 : undefined
    if (fd === undefined) return pino(options, { write: (line) => void output.write(printableJson(line)) })
    const again = (lost: number) => log.warn({ lost }, 'the log could not be written: lines are missing')
    const log = pino(options, standardStream(fd, again))
    return log
  }
  const show = terminalLog({
    clock: systemClock,
    paint: paintFor(true, process.env),
    write: (line) => void output.write(`${line}\n`),
  })
  return pino(options, { write: (line) => show(JSON.parse(line) as LogEntry) })
}
