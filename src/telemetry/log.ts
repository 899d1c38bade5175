import pino from 'pino'
import pretty from 'pino-pretty'

export type Log = pino.Logger

/**
 * The process's logger: pretty on a terminal, JSON lines otherwise, always on standard output.
 * `level` is one of pino's: trace, debug, info, warn, error, fatal, silent.
 */
export function createLog(level: string, output: NodeJS.WriteStream = process.stdout): Log {
  const options: pino.LoggerOptions = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  return output.isTTY ? pino(options, pretty({ colorize: true, sync: true })) : pino(options, output)
}
