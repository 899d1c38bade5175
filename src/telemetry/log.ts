import pino from 'pino'
import { type Cancel, type Millis, systemClock } from '../mesh/clock.ts'
import { paintFor } from './colours.ts'
import { printableJson } from './printable.ts'
import { type LogEntry, terminalLog } from './terminal-log.ts'

export type Log = pino.Logger

/** The stream for a log; `isTTY`: true for a terminal. */
export interface LogOutput {
  readonly isTTY?: boolean
  write(text: string): unknown
}

/** Longest time for which lines below a warning are buffered, in milliseconds, and most buffered characters. */
const GATHER_MS: Millis = 20
const GATHER_LENGTH = 16 * 1024

/** Most bytes of the log that are buffered while its stream accepts nothing. */
const MAX_WAITING = 1024 ** 2

/** The pino level from which a line is written at once, together with all buffered lines. */
const WARN = 40

/** Delay before a failed write is retried, and how long the last write is retried at exit, in milliseconds. */
const AGAIN_MS: Millis = 100
const LAST_MS: Millis = 2_000

/**
 * Returns a buffered standard stream for log lines. Several lines share a write, because a write costs as much as half
 * a call. At exit, waits up to two seconds until the stream accepts the last lines. A killed process loses its log of
 * the last 20 ms, except warnings. With a full disk or an unread pipe, the stream buffers a limited amount and drops
 * the rest. Calls `again` with the number of lost lines when writing works again.
 */
function standardStream(fd: 1 | 2, again: (lost: number) => void) {
  let lost = 0
  let failure: string | undefined
  let cancelRetry: Cancel | undefined
  // Writes synchronously to the file descriptor, as pino does. Turns off pino's immediate retry, which would block the
  // process.
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
    // Triggers a retry, because pino retries only when it has more to write.
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
 * Returns the process's logger, on standard output by default. Writes readable lines on a terminal, JSON lines
 * elsewhere. Escapes characters that control a terminal or begin a line. `level` is a pino level: trace, debug, info,
 * warn, error, fatal, silent.
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
