import { faults as types } from '../../chaos/faults/index.ts'
import { targetFindings } from '../../chaos/plan/checks.ts'
import type { Config } from '../schema/schema.ts'
import type { Finding } from './finding.ts'

/** Faults that hit no server, or cannot work with those that they hit. */
export function faultFindings({ chaos, mcpServers }: Config, severity: 'error' | 'warning'): Finding[] {
  const targets = Object.entries(mcpServers).map(([name, server]) => {
    const era = server.type === 'sse' || server.era === 'auto' ? undefined : server.era
    return { name, kind: { transport: server.type, era } }
  })
  return targetFindings(chaos.faults, targets, types)
    .filter((finding) => finding.severity === severity)
    .map(({ path, message }) => ({ path: ['chaos', ...path], at: 'value', message }))
}
