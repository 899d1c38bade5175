import { diag, DiagLogLevel } from '@opentelemetry/api'
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
    error: (message: string) => log.error(message),
    warn: (message: string) => log.warn(message),
    info: (message: string) => log.info(message),
    debug: (message: string) => log.debug(message),
    verbose: (message: string) => log.trace(message),
  }
  diag.setLogger(logger, { logLevel, suppressOverrideMessage: true })
}
