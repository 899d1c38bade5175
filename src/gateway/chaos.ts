import { Controller } from '../chaos/control/controller.ts'
import { injector } from '../chaos/injector.ts'
import type { Call, FaultFate, Layer, Outcome, Service } from '../mesh/call.ts'
import { type Clock, sleepOn } from '../mesh/clock.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { noteChaos } from '../telemetry/chaos-events.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { noteFaults } from '../telemetry/observe-policies.ts'
import { worldOf } from './fault-environment.ts'

/** The chaos mesh, as the rest of the gateway knows it. */
export interface Chaos {
  readonly controller: Controller
  readonly layers: {
    readonly client: Layer
    readonly upstream: Layer
    /** As `upstream`, for what the gateway asks servers by itself: nobody else counts the faults of that. */
    readonly discovery: Layer
  }
  /** Says of each fault of a call what became of it. Once per call, at its very end. */
  readonly account: (call: Call, outcome: Outcome) => readonly FaultFate[]
}

export interface ChaosParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** The generation in force; not asked for before there is one. */
  readonly current: () => GatewayGeneration
  /** As it was at boot. */
  readonly environment: string
  readonly variables: Readonly<Record<string, string | undefined>>
}

/** Ties the chaos mesh to the gateway. It starts disarmed. */
export function createChaos(parts: ChaosParts): Chaos {
  const { clock, log, metrics, current, environment, variables } = parts
  const note = noteChaos(metrics, log)
  const controller = new Controller({
    clock: harmless(clock, log),
    environment,
    variables,
    world: worldOf(current, clock),
    effectOf: (call) => current().mesh.effectOf(call),
    emit(event) {
      note(event)
      if (changesLists.has(event.type)) for (const server of current().servers.values()) server.refresh()
    },
  })
  const upstream = injector('upstream', controller.engine)
  return {
    controller,
    layers: {
      client: injector('client', controller.engine),
      upstream,
      discovery: (next) => counted(upstream(next), metrics),
    },
    account: (call, outcome) => controller.engine.account(call, outcome),
  }
}

/** Counts the faults of questions that are no agent's: there is nobody whose lot they could be. */
function counted(ask: Service, metrics: Metrics): Service {
  return (call) =>
    ask(call).then((outcome) => {
      noteFaults(metrics, call.record)
      return outcome
    })
}

/** A clock whose tasks cannot end the process: what a fault does later has no call to fail. */
function harmless(clock: Clock, log: Log): Clock {
  const after: Clock['after'] = (ms, task) =>
    clock.after(ms, () => {
      try {
        task()
      } catch (cause) {
        log.error({ err: cause }, 'chaos: a fault met a defect of ours')
      }
    })
  return { now: clock.now, wall: clock.wall, after, sleep: (ms, signal) => sleepOn({ after }, ms, signal) }
}

/** Events after which servers are asked for their lists again: faults of the registry show there, and go. */
const changesLists: ReadonlySet<string> = new Set([
  'armed',
  'disarmed',
  'killed',
  'unkilled',
  'plan',
  'injected',
  'cleared',
  'expired',
])
