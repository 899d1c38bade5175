import type { MeshEvent } from '../mesh/policy.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'

/** Counts and logs what policies tell. */
export function noteEvents(
  metrics: Pick<Metrics, 'meshEvents' | 'breakerTransitions'>,
  log: Log,
): (event: MeshEvent) => void {
  return ({ type, server, tool, detail = {} }) => {
    metrics.meshEvents.inc({ server, type })
    if (type === 'breaker') {
      const { dimension, state } = detail as { dimension: string; state: string }
      metrics.breakerTransitions.inc({ server, tool: tool ?? '_other', dimension, state })
    }
    log[detail.state === 'open' ? 'warn' : 'info']({ server, tool, ...detail }, type)
  }
}
