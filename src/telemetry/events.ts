import { DEFAULT_SET } from '../mesh/settings.ts'
import type { MeshEvent } from '../mesh/policy.ts'
import { events } from '../policies/descriptions.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import { OTHER } from './metrics/label-value.ts'

/** Counts and logs policy events. */
export function notePolicies(
  metrics: Pick<Metrics, 'meshEvents' | 'ofPolicies' | 'tools'>,
  log: Log,
): (event: MeshEvent) => void {
  return ({ type, set, server, tool, detail = {} }) => {
    const arm = set === DEFAULT_SET ? '' : set
    metrics.meshEvents.inc({ server, type, arm })
    const known = events.get(type)
    if (known?.counter !== undefined) {
      const label = tool === undefined ? OTHER : metrics.tools.of(server, tool, always).labels.tool
      metrics.ofPolicies.counter(known.counter).inc({ server, tool: label, arm, ...known.labels?.(detail) })
    }
    log[known?.isWarning?.(detail) === true ? 'warn' : 'info']({ server, tool, set, ...detail }, type)
  }
}

/** Accepts any tool without a lookup, because only tools in a catalog have separate policy state. */
const always = () => true

/** The parts of a fault event that telemetry reads. */
interface ChaosEvent {
  readonly type: string
  readonly by?: string
  readonly why?: string
  readonly detail?: Readonly<Record<string, unknown>>
}

/** Counts and logs fault events for operators. */
export function noteChaos(
  { chaosEngineErrors }: Pick<Metrics, 'chaosEngineErrors'>,
  log: Log,
): (event: ChaosEvent) => void {
  return ({ type, by, why, detail }) => {
    if (type === 'engine_error') chaosEngineErrors.inc()
    log[type.endsWith('_error') ? 'error' : 'warn']({ by, why, ...detail }, `chaos: ${type}`)
  }
}

/** The parts of an experiment event that telemetry reads. */
interface ExperimentEvent {
  readonly type: string
  readonly name?: string
  readonly reason?: string
  readonly sentence?: string
  /** The experiment that this experiment waits for. */
  readonly for?: string
  readonly why?: string
}

/** Logs experiment events for operators. */
export function noteExperiments(log: Log): (event: ExperimentEvent) => void {
  return ({ type, name, reason, sentence, for: other, why }) =>
    log.warn({ experiment: name, reason, verdict: sentence, for: other, why }, `experiment ${type}`)
}
