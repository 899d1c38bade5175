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

/** Only tools in a catalog have policies of their own, so no lookup is needed. */
const always = () => true

/** An event of the chaos mesh, as far as telemetry reads the event. */
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

/** An event of experiments, as far as telemetry reads the event. */
interface ExperimentEvent {
  readonly type: string
  readonly name?: string
  readonly reason?: string
  readonly sentence?: string
  /** The experiment it waits for. */
  readonly for?: string
  readonly why?: string
}

/** Logs experiment events for operators. */
export function noteExperiments(log: Log): (event: ExperimentEvent) => void {
  return ({ type, name, reason, sentence, for: other, why }) =>
    log.warn({ experiment: name, reason, verdict: sentence, for: other, why }, `experiment ${type}`)
}
