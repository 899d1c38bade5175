import pino from 'pino'
import pretty from 'pino-pretty'
import { printableJson, printableValue } from './printable.ts'

export type Log = pino.Logger

/**
 * The process's logger: pretty on a terminal, JSON lines otherwise, on standard output unless told otherwise. Whatever
 * is logged, no character of it is one that a terminal obeys, and none begins a line.
 * `level` is one of pino's: trace, debug, info, warn, error, fatal, silent.
 */
export function createLog(level: string, output: NodeJS.WriteStream = process.stdout): Log {
  const options: pino.LoggerOptions = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  if (!output.isTTY) {
    // Standard output is written to as pino does itself: at once, by its file descriptor.
    const sink = output === process.stdout ? pino.destination({ dest: 1, sync: true }) : output
    return pino(options, { write: (line) => void sink.write(printableJson(line)) })
  }
  const view = pretty({ colorize: true, sync: true, destination: output })
  return pino(options, {
    write: (line) => void view.write(`${JSON.stringify(printableValue(JSON.parse(line)))}\n`),
  })
}
