import type { Log } from './log.ts'
import { exporterVariables, readSettings, type TracingSettings } from './tracing/settings.ts'

import type { Tracing, TracingParts } from './tracing/contract.ts'

export type { LossCause, SpanCounts, Tracing, TracingParts } from './tracing/contract.ts'
export type { TracesConfig } from './tracing/settings.ts'

/**
 * Creates tracing from the environment and the config. Resolves to undefined without an endpoint: tracing is then off,
 * and the OpenTelemetry SDK is not loaded. `readSettings` defines the variables and their precedence. If the exporter
 * refuses the settings, logs this and leaves tracing off; calls continue.
 */
export async function createTracing(parts: TracingParts): Promise<Tracing | undefined> {
  const settings = readSettings(parts.env, parts.config)
  if (settings === undefined) return undefined
  tellIgnored(settings, parts.env, parts.log)
  const { startTracing } = await import('./tracing/traced.ts')
  try {
    return await startTracing(settings, parts)
  } catch (error) {
    // Logs only the error's name: its message may quote the wrong value, such as a header with a token.
    const { name } = error as Error
    parts.log.error(
      { error: name, protocol: settings.protocol, variables: exporterVariables(parts.env, 'TRACES') },
      'no spans: the settings of the exporter are invalid',
    )
    return undefined
  }
}

/** Logs the variables that were ignored because of their values. */
export function tellIgnored(
  { ignored }: Pick<TracingSettings, 'ignored'>,
  env: TracingParts['env'],
  log: Log,
): void {
  for (const variable of ignored)
    log.warn(
      { variable, value: env[variable] },
      'an environment variable has a value that is not supported: ignored',
    )
}
