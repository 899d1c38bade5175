import pino from 'pino'
import { systemClock } from '../mesh/clock.ts'
import { paintFor } from './colours.ts'
import { printableJson } from './printable.ts'
import { type LogEntry, terminalLog } from './terminal-log.ts'

export type Log = pino.Logger

/** Where a log goes; `isTTY` where a person reads it. */
export interface LogOutput {
  readonly isTTY?: boolean
  write(text: string): unknown
}

/**
 * The process's logger: lines for people on a terminal, JSON lines otherwise, on standard output unless told otherwise.
 * Whatever is logged, no character of it is one that a terminal obeys, and none begins a line.
 * `level` is one of pino's: trace, debug, info, warn, error, fatal, silent.
 */
export function createLog(level: string, output: LogOutput = process.stdout): Log {
  const options: pino.LoggerOptions = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  if (!output.isTTY) {
    // Standard output is written to as pino does itself: at once, by its file descriptor.
    const sink = output === process.stdout ? pino.destination({ dest: 1, sync: true }) : output
    return pino(options, { write: (line) => void sink.write(printableJson(line)) })
  }
  const show = terminalLog({
    clock: systemClock,
    paint: paintFor(true, process.env),
    write: (line) => void output.write(`${line}\n`),
  })
  return pino(options, { write: (line) => show(JSON.parse(line) as LogEntry) })
}
