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

/** Most of the log that waits while standard output takes none of it, in bytes. */
const MAX_WAITING = 1024 ** 2

/** From this level on of pino's a line is written at once, with those before it. */
const WARN = 40

/**
 * Standard output for lines: several in one write, which costs as much as half of a call. What is written last before the process exits
 * is not lost; one that is killed loses what it logged in its last 20 ms, but for warnings. A disk that is full stops nothing: so much
 * waits for room, what goes beyond it is lost, and `again` hears how many lines, once it is written again.
 */
function standardOutput(again: (lost: number) => void) {
  let lost = 0
  // As pino does it: at once, by the file descriptor.
  const sink = pino.destination({ dest: 1, sync: true, maxLength: MAX_WAITING })
  sink.on('error', () => undefined)
  sink.on('drop', (dropped: string) => {
    lost += dropped.split('\n').length - 1
    // Without more to write it would not try again.
    sink.write('')
  })
  let lines = ''
  let cancel: Cancel | undefined
  const flush = () => {
    cancel?.()
    cancel = undefined
    if (lines === '') return
    const text = lines
    lines = ''
    const isTaken = sink.write(text)
    if (!isTaken || lost === 0) return
    const count = lost
    lost = 0
    again(count)
  }
  process.once('exit', flush)
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
 * Whatever is logged, no character of it is one that a terminal obeys, and none begins a line.
 * `level` is one of pino's: trace, debug, info, warn, error, fatal, silent.
 */
export function createLog(level: string, output: LogOutput = process.stdout): Log {
  const options: pino.LoggerOptions = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  if (!output.isTTY) {
    if (output !== process.stdout)
      return pino(options, { write: (line) => void output.write(printableJson(line)) })
    const again = (lost: number) => log.warn({ lost }, 'the log could not be written: lines are missing')
    const log = pino(options, standardOutput(again))
    return log
  }
  const show = terminalLog({
    clock: systemClock,
    paint: paintFor(true, process.env),
    write: (line) => void output.write(`${line}\n`),
  })
  return pino(options, { write: (line) => show(JSON.parse(line) as LogEntry) })
}
