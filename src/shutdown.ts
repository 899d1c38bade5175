import type { FastifyInstance } from 'fastify'
import type { Agents } from './agents.ts'
import type { Clock, Millis } from './mesh/clock.ts'
import type { Live } from './mesh/live.ts'
import type { GatewayGeneration } from './registry/generation.ts'
import type { Log } from './telemetry/log.ts'
import { endSupervisor } from './upstreams/stdio/groups.ts'

export interface ShutdownParts {
  readonly dataPlane: FastifyInstance
  readonly controlPlane: FastifyInstance
  readonly live: Live<GatewayGeneration>
  readonly agents: Agents
  /** Faults end first: what they hold back has to be let go. */
  readonly chaos: { close(): Promise<void> }
  /** Spans that are left are sent, as far as the collector takes them. */
  readonly tracing: { close(): Promise<void> }
  /** Told last of the ends of calls; undefined where nothing outlives the process. */
  readonly durable: { close(): Promise<void> } | undefined
  /** Tasks of agents end with the process. */
  readonly intents: { closeAll(): void }
  readonly endStallWatch: () => void
  /** While the control plane's address is still ours. */
  readonly removeToken: () => Promise<void>
  /** Requests of agents that are under way, and calls that go on though their agents have left. */
  readonly load: { readonly inFlight: number; readonly detached: number }
  readonly clock: Clock
  readonly log: Log
}

/** How often the drain looks whether calls are still under way, in milliseconds. */
const LOOK_MS: Millis = 50

/** Ends a gateway in the order that hurts least: no new connections, calls in flight, sessions, children, the rest. */
export async function shutDown(parts: ShutdownParts): Promise<void> {
  const { dataPlane, controlPlane, live, agents, load, log } = parts
  const { drain } = live.current.config.gateway
  const stopped = new Promise<void>((resolve) => dataPlane.server.close(() => resolve()))
  log.info(
    { inFlight: load.inFlight, detached: load.detached, drainMs: drain },
    'stopping: calls in flight may finish',
  )
  await parts.chaos.close()
  await drained(parts, drain)
  if (isBusy(load)) log.warn({ ...load }, 'the drain is over: ending calls in flight')
  await agents.close()
  // Those of older configs, too, whose last calls have not ended.
  const servers = new Set(live.open.flatMap((generation) => [...generation.servers.values()]))
  await Promise.all([...servers].map((server) => server.close()))
  await parts.removeToken()
  await Promise.all([dataPlane.close(), controlPlane.close(), endSupervisor(parts.clock)])
  parts.intents.closeAll()
  parts.endStallWatch()
  await Promise.all([stopped, parts.tracing.close(), parts.durable?.close()])
  log.info('stopped')
}

async function drained({ load, clock }: ShutdownParts, limitMs: Millis): Promise<void> {
  const never = new AbortController().signal
  const until = clock.now() + limitMs
  while (isBusy(load) && clock.now() < until) await clock.sleep(LOOK_MS, never)
}

function isBusy({ inFlight, detached }: ShutdownParts['load']): boolean {
  return inFlight + detached > 0
}
