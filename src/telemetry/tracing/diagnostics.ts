import { diag, DiagLogLevel } from '@opentelemetry/api'
import { core } from '@opentelemetry/sdk-node'
import type { Log } from '../log.ts'

const levels: Readonly<Record<string, DiagLogLevel>> = {
  ERROR: DiagLogLevel.ERROR,
  WARN: DiagLogLevel.WARN,
  INFO: DiagLogLevel.INFO,
  DEBUG: DiagLogLevel.DEBUG,
  VERBOSE: DiagLogLevel.VERBOSE,
  ALL: DiagLogLevel.ALL,
}

/** Has the SDK speak through our log, as far as `OTEL_LOG_LEVEL` asks it to; by default it is silent. */
export function tellDiagnostics(log: Log, level: string | undefined): void {
  const logLevel = levels[level?.toUpperCase() ?? ''] ?? DiagLogLevel.NONE
  const logger = {
    error: (...words: unknown[]) => log.error(said(words)),
    warn: (...words: unknown[]) => log.warn(said(words)),
    info: (...words: unknown[]) => log.info(said(words)),
    debug: (...words: unknown[]) => log.debug(said(words)),
    verbose: (...words: unknown[]) => log.trace(said(words)),
  }
  diag.setLogger(logger, { logLevel, suppressOverrideMessage: true })
  // The SDK's own handler prints all of an error: also what the collector said, which may be what we have sent it.
  core.setGlobalErrorHandler((error) => diag.error(typeof error === 'string' ? error : (error.message ?? '')))
}

/**
 * What `make` makes, without the logger that the SDK's constructor puts in place of ours: it writes to the standard
 * output, which may be the wire of an agent. A variable of the process is all that it asks.
 */
export function keepingLog<T>(make: () => T): T {
  const level = process.env.OTEL_LOG_LEVEL
  Reflect.deleteProperty(process.env, 'OTEL_LOG_LEVEL')
  try {
    return make()
  } finally {
    if (level !== undefined) process.env.OTEL_LOG_LEVEL = level
  }
}

/** Only what is text: the rest are spans, and errors with all that is in them. */
const said = (words: readonly unknown[]) => words.filter((word) => typeof word === 'string').join(' ')
