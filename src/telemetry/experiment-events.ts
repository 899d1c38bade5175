import type { Log } from './log.ts'

/** What experiments tell, as far as telemetry reads it. */
interface ExperimentEvent {
  readonly type: string
  readonly name?: string
  readonly reason?: string
  readonly sentence?: string
  /** The one that it waits for. */
  readonly for?: string
  readonly why?: string
}

/** Logs what an operator will want to read about experiments. */
export function noteExperiments(log: Log): (event: ExperimentEvent) => void {
  return ({ type, name, reason, sentence, for: other, why }) =>
    log.warn({ experiment: name, reason, verdict: sentence, for: other, why }, `experiment ${type}`)
}
