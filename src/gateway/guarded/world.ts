import type { Controller } from '../../chaos/control/controller.ts'
import type { GuardedArms } from '../../experiments/guarded/arms.ts'
import type { World } from '../../experiments/guarded/lifecycle.ts'
import type { Meter } from '../../experiments/guarded/meter.ts'
import type { FaultRecord, LayerState, Proof, RunRecord, Targets } from '../../experiments/guarded/record.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import { ARMS } from '../../experiments/guarded/arms.ts'
import { armName } from '../../experiments/schema.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { StateKey, StateStore } from '../../mesh/policy.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import type { Live } from '../../mesh/live.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Log } from '../../telemetry/log.ts'
import { armedAt, aimed, longestMs } from './survey.ts'

export interface WorldParts {
  readonly clock: Clock
  readonly log: Log
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly controller: Controller
  readonly state: StateStore
  readonly arms: GuardedArms
  /** Returns why the run must end; undefined when the run may continue. `hitsPerMinute`: faults of the last minute. */
  readonly exceededBy: (run: string, targets: Targets, hitsPerMinute: number) => string | undefined
  /** Recompiles the config in force with the current arms. Throws when the config does not compile. */
  readonly refresh: () => void
  /** Plays a load until the returned function is called; see `playLoad`. */
  readonly play: (
    load: NonNullable<Spec['load']>,
    onEnd: (why: string) => void,
    onReady: () => void,
  ) => () => void
}

/** An armed fault of a run; `armed` is its name in the controller. */
interface OwnFault extends Pick<FaultRecord, 'name' | 'type'> {
  readonly armed: string
  readonly counts: Omit<FaultRecord, 'name' | 'type'>
}

/**
 * Lease of a run's faults, in milliseconds: ends the faults if a bug ends the run. It is many ticks long, because the
 * machine may be busy.
 */
const LEASE_MS: Millis = 5_000

/** Margin of the faults' `ttl` beyond the stages, in milliseconds. */
const MARGIN_MS: Millis = 30_000

/** Returns the actions of a run on this gateway, and its view of the gateway. */
export function worldOf({ spec, name, targets, id: run }: RunRecord, meter: Meter, parts: WorldParts): World {
  const { clock, log, live, controller, state, arms, refresh, play, exceededBy } = parts
  const by = `experiment ${name}`
  const servers = targets.servers.map((server) => server.name)
  const sets = new Set([DEFAULT_SET, ...ARMS.map((arm) => armName(name, arm))])
  /** Faults of the run by their id in the runtime API. */
  const ids = new Map<string, OwnFault>()
  let stopLoad: (() => void) | undefined
  let loadProblem: string | undefined
  let isReady = spec.load === undefined
  const injections = new Injections()

  function inject(ttl: Millis): void {
    for (const [index, fault] of aimed(spec, ttl).entries()) {
      const injected = controller.runtime.inject(fault, by, ttl, LEASE_MS)
      const own = spec.faults[index]?.name ?? fault.name
      if (!injected.ok) throw new Error(`fault "${own}": ${injected.why}`)
      ids.set(injected.id, { armed: fault.name, name: own, type: fault.type, counts: injected.counts })
    }
  }

  return {
    begin() {
      arms.measure(spec, meter)
      refresh()
      if (spec.load === undefined) return
      const onEnd = (why: string) => (loadProblem = why)
      stopLoad = play(spec.load, onEnd, () => (isReady = true))
    },
    isReady: () => isReady,
    arm({ share, remainingMs }) {
      if (controller.killSwitch.on) throw new Error('the kill switch is on')
      arms.split(spec, share)
      refresh()
      if (ids.size === 0) inject(remainingMs + MARGIN_MS)
    },
    renew() {
      if (loadProblem !== undefined) return `the load of the run failed: ${loadProblem}`
      const gone = controller.runtime.renew([...ids.keys()])
      if (gone.length > 0) {
        const names = gone.map((id) => ids.get(id)?.name ?? id).join(', ')
        return `faults of the run ended before the run: ${names}`
      }
      const injected = [...ids.values()].reduce((sum, { counts }) => sum + counts.injected, 0)
      const exceeded = exceededBy(run, targets, injections.lastMinute(clock.now(), injected))
      if (exceeded !== undefined) return exceeded
      const own = new Set([...ids.values()].map(({ armed }) => armed))
      const foreign = armedAt(servers, controller).find((fault) => !own.has(fault))
      return foreign && `another fault, "${foreign}", was armed at the servers of the run`
    },
    rollback() {
      for (const id of ids.keys()) controller.runtime.clear(id, by, 'the run was rolled back')
      // Stops assigning calls to the arms, in all generations.
      arms.join()
      try {
        refresh()
      } catch (error) {
        log.error({ err: error, experiment: name }, 'the arms of an experiment could not be removed')
      }
      return proofOf(name, parts)
    },
    end() {
      stopLoad?.()
      stopLoad = undefined
      arms.clear()
      try {
        refresh()
      } catch (error) {
        log.error({ err: error, experiment: name }, 'the meter of an experiment could not be removed')
      }
    },
    servers() {
      return servers.map((server) => {
        const found = live.current.servers.get(server)
        const isUp = found?.state === 'up'
        const probeFailures = found?.health.state === 'unknown' ? undefined : found?.health.failures
        return { name: server, isUp, uptimeMs: isUp ? clock.wall() - found.since : 0, probeFailures }
      })
    },
    longestMs: () => longestMs(spec.arms.treatment, targets, live.current.config.policies),
    layers: () => layersOf(servers, sets, { clock, state, live }),
    faults() {
      const faults = [...ids.values()].map(({ name, type, counts }): FaultRecord => {
        const { decided, injected, notApplicable, notReached, masked, delayed, surfaced, escaped } = counts
        const fates = { notApplicable, notReached, masked, delayed, surfaced, escaped }
        return { name, type, decided, injected, ...fates }
      })
      return { faults, engineErrors: controller.engine.errors }
    },
  }
}

/** Counts the injections of a run in the last minute. */
class Injections {
  readonly #looks: { readonly at: Millis; readonly total: number }[] = [{ at: -Infinity, total: 0 }]

  /** `total`: injections since the run began. Call several times a minute. */
  lastMinute(now: Millis, total: number): number {
    this.#looks.push({ at: now, total })
    while (this.#looks.length > 1 && this.#looks[1]!.at <= now - 60_000) this.#looks.shift()
    return total - this.#looks[0]!.total
  }
}

/** Returns the run's armed faults and existing arms. */
export function proofOf(
  name: string,
  { controller, live, arms }: Pick<WorldParts, 'controller' | 'live' | 'arms'>,
): Omit<Proof, 'atMs' | 'tookMs' | 'troubled'> {
  const { state, faults: known } = controller.status()
  const treatment = armName(name, 'treatment')
  const own = ARMS.map((arm) => armName(name, arm))
  const assigned = new Set(arms.names)
  return {
    armed: known
      .filter(({ armed, config }) => armed && config.match?.arm === treatment)
      .map((fault) => fault.name),
    arms: own.filter((arm) => assigned.has(arm) || live.current.mesh.hasSet(arm)),
    chaos: state,
  }
}

/** The part of a breaker's state that this module reads. */
interface BreakerState {
  snapshot(): { readonly state: string }
}
interface LoadState {
  isEjected(now: Millis): boolean
}

/** Returns the states at these servers that recover by themselves: the registry, gates, breakers and replicas. */
function layersOf(
  servers: readonly string[],
  sets: ReadonlySet<string>,
  { clock, state, live }: Pick<WorldParts, 'clock' | 'state' | 'live'>,
): LayerState[] {
  const isOwn = (key: { readonly server: string; readonly set: string }) =>
    servers.includes(key.server) && sets.has(key.set)
  const suffix = (set: string) => (set === DEFAULT_SET ? '' : ` of ${set}`)
  const closing = (kind: string, nameOf: (key: StateKey) => string) =>
    state
      .list<BreakerState>(kind)
      .filter(([key]) => isOwn(key))
      .map(([key, one]) => {
        const now = one.snapshot().state
        return { name: `${kind} ${nameOf(key)}${suffix(key.set)}`, state: now, isWell: now === 'closed' }
      })
  const gates = closing('gate', ({ server }) => server)
  const breakers = closing('breaker', ({ server, tool }) => `${server}/${tool ?? '*'}`)
  const replicas = state
    .list<LoadState>('load')
    .filter(([key]) => isOwn(key))
    .map(([{ server, replica = 0, set }, load]) => {
      const isEjected = load.isEjected(clock.now())
      return {
        name: `replica ${server}#${replica}${suffix(set)}`,
        state: isEjected ? 'ejected' : 'in use',
        isWell: !isEjected,
      }
    })
  const registry = servers.map((name) => {
    const is = live.current.servers.get(name)?.state ?? 'gone'
    return { name: `server ${name}`, state: is, isWell: is === 'up' }
  })
  return [...registry, ...gates, ...breakers, ...replicas]
}
