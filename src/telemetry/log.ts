import pino from 'pino'
import { type Cancel, type Millis, systemClock } from '../mesh/clock.ts'
import { paintFor } from './colours.ts'
import { printableJson } from './printable.ts'
import { type LogEntry, terminalLog } from './terminal-log.ts'

export type Log = pino.Logger

/** Where a log goes; `isTTY` when a person reads the log. */
export interface LogOutput {
  readonly isTTY?: boolean
  write(text: string): unknown
}

/** Lines below a warning wait for others for this long, in milliseconds, or until this many characters wait. */
const GATHER_MS: Millis = 20
const GATHER_LENGTH = 16 * 1024

/** Most of the log that waits while its stream accepts nothing, in bytes. */
const MAX_WAITING = 1024 ** 2

/** Lines from this pino level on are written at once, with all lines before. */
const WARN = 40

/** Delay before a failed write is retried, and how long the last write is retried at exit, in milliseconds. */
const AGAIN_MS: Millis = 100
const LAST_MS: Millis = 2_000

/**
 * A standard stream for lines. Several lines share a write, since a write costs as much as half a call. The last lines
 * before exit are not lost if the stream accepts the lines within two seconds. A killed process loses its log of the
 * last 20 ms, except warnings. A full disk or an unread pipe blocks nothing: a limited amount waits, the rest is lost.
 * `again` is called with the number of lost lines when writing works again.
 */
function standardStream(fd: 1 | 2, again: (lost: number) => void) {
  let lost = 0
  let failure: string | undefined
  let cancelRetry: Cancel | undefined
  // As pino does: at once, by file descriptor. Pino's default immediate retry would block the process.
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
    // Without more to write, pino would not retry.
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
    // Makes pino set `lastLevel` to the level of the line.
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
 * The process's logger: readable lines on a terminal, JSON lines otherwise; on standard output by default. Logs no
 * character that a terminal obeys or that begins a line. `level` is a pino level: trace, debug, info, warn, error,
 * fatal, silent.
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
