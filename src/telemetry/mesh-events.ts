import { DEFAULT_SET } from '../mesh/settings.ts'
import type { MeshEvent } from '../mesh/policy.ts'
import { events } from '../policies/descriptions.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import { OTHER } from './metrics/tool-series.ts'

/** Counts and logs what policies tell. */
export function noteEvents(
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

/** Only tools in a catalog have policies of their own, so there is no need to look it up. */
const always = () => true
