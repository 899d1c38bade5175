import type { MeshEvent } from '../mesh/policy.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import { OTHER } from './metrics/tool-series.ts'

/** Counts and logs what policies tell. */
export function noteEvents(
  metrics: Pick<Metrics, 'meshEvents' | 'breakerTransitions' | 'tools'>,
  log: Log,
): (event: MeshEvent) => void {
  return ({ type, server, tool, detail = {} }) => {
    metrics.meshEvents.inc({ server, type })
    if (type === 'breaker') {
      const { dimension, state } = detail as { dimension: string; state: string }
      const label = tool === undefined ? OTHER : metrics.tools.of(server, tool, always).labels.tool
      metrics.breakerTransitions.inc({ server, tool: label, dimension, state })
    }
    log[detail.state === 'open' ? 'warn' : 'info']({ server, tool, ...detail }, type)
  }
}

/** Only tools in a catalog have policies of their own. */
const always = () => true
