import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'

/** What the chaos mesh tells, as far as telemetry reads it. */
interface ChaosEvent {
  readonly type: string
  readonly by?: string
  readonly why?: string
  readonly detail?: Readonly<Record<string, unknown>>
}

/** Counts and logs what an operator will want to read about faults. */
export function noteChaos(
  { chaosEngineErrors }: Pick<Metrics, 'chaosEngineErrors'>,
  log: Log,
): (event: ChaosEvent) => void {
  return ({ type, by, why, detail }) => {
    if (type === 'engine_error') chaosEngineErrors.inc()
    log[type.endsWith('_error') ? 'error' : 'warn']({ by, why, ...detail }, `chaos: ${type}`)
  }
}
