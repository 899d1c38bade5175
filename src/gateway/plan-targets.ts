import { serverAddress } from '../chaos/fault.ts'
import type { PlanTargets } from '../chaos/plan/checks.ts'
import type { GatewayGeneration } from '../registry/generation.ts'

/** The servers that faults may aim at, as the checks of plans know them. */
export const serverTargets = (servers: GatewayGeneration['servers']): PlanTargets['servers'] =>
  [...servers.values()].map((server) => ({
    name: server.name,
    protected: server.protected,
    // The gateway itself calls the tool of a health check, whether agents see it or not.
    tools: [...server.entries('tools').map(({ key }) => key), ...server.excluded],
    kind: {
      transport: server.transportAt(),
      era: server.onlyEra,
      ...(server.config.type !== 'stdio' && { address: serverAddress(server.config.urls) }),
    },
  }))
