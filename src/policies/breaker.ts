import type { z } from 'zod'
import type { Call, CallRecord, Layer, Outcome, Service } from '../mesh/call.ts'
import { isConnectionLost } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { counter, gauge } from '../mesh/metric-spec.ts'
import { askedMs } from '../mesh/pause-deadline.ts'
import type { Operator, Policy, PolicyContext } from '../mesh/policy.ts'
import {
  type BreakerConfig,
  breakerSchema,
  type HealthSample,
  HealthWindow,
  judge,
} from './breaker/health.ts'
import { Holds, note } from './breaker/holds.ts'
import {
  breakerOpen,
  type BreakerOwner,
  type BreakerSnapshot,
  type HalfOpenProbes,
  Machine,
  OPENED,
  type Probe,
  refusedOpen,
  refusedProbing,
} from './breaker/state-machine.ts'

const BREAKER = 'breaker'

const actions = ['open', 'close', 'reset'] as const satisfies readonly BreakerOrder[]

/**
 * Applies an operator's orders to one tool's breakers. An order to hold breakers open also applies to later breakers.
 */
export const operator: Operator<Breaker> = {
  path: 'breakers',
  kind: BREAKER,
  noun: 'breaker',
  actions,
  act(action, target, breakers, { state, clock }) {
    const order = actions.find((known) => known === action)
    if (order === undefined) return
    note(state, target, order === 'open' && clock.wall())
    for (const breaker of breakers) breaker.force(order)
  },
  catchUp({ set, server }, breaker, store) {
    breaker.catchUp(new Holds(store, set, server))
  },
  held(set, server, store, isInForce) {
    return new Holds(store, set, server).list().map(([tool, since]) => {
      const why = isInForce(tool)
        ? OPENED
        : `${OPENED}; calls pass, since no policy set has a breaker for them now`
      return { tool, state: 'open', since, dimension: 'manual', why, manual: true }
    })
  },
}

const states = ['closed', 'open', 'half_open'] as const

/**
 * Stops calling a tool that fails or answers wrongly. Each endpoint has its own breaker; calls without a replica use
 * the breaker of the first endpoint.
 */
export const breaker: Policy<z.output<typeof breakerSchema>> & { schema: typeof breakerSchema } = {
  schema: breakerSchema,
  optIn: true,
  use: 'Keep it in force where failures are slow, or where a server breaks under load: it spares agents the wait, and gives the server time to recover. It prolongs quick, short failures: set `open: 1s` there (`breakwater study ablation` shows the effect). Use `false` only where even a failing server has to get every call.',
  reasons: [breakerOpen],
  events: {
    breaker: {
      about: 'A breaker has changed its state.',
      counter: counter(
        'breaker_transitions_total',
        'State changes of breakers, by cause and new state.',
        ['server', 'tool', 'dimension', 'state', 'arm'],
        'tools × 4 dimensions × 3 states × arms',
      ),
      labels: ({ dimension, state }) => ({ dimension: String(dimension), state: String(state) }),
      isWarning: ({ state }) => state === 'open',
    },
  },
  states: [
    {
      kind: BREAKER,
      gauge: {
        metric: gauge(
          'breaker_state',
          '1 for the present state of a breaker, of the default policies or of an arm; for several replicas, the number of breakers.',
          ['server', 'tool', 'state', 'arm'],
          'tools × 3 states × arms',
        ),
        // Also called for an order without a breaker, because the admin API shows the order.
        samples({ state: now }: { readonly state: string }) {
          return states.map((state) => ({ labels: { state }, value: now === state ? 1 : 0 }))
        },
      },
    },
  ],
  operator,
  unset({ state }, { set, server, tool }): Layer {
    const holds = new Holds(state, set, server)
    const refused = refusedOpen({ server, tool }, OPENED, Infinity)
    return (next) => (call) => (holds.since(tool) === false ? next(call) : Promise.resolve(refused))
  },
  build(config, context, { set, server, tool, overrides, endpoints, backAt }): Layer {
    const breakers = new Array<Breaker | undefined>(endpoints.length)
    const holds = new Holds(context.state, set, server)
    function breakerOf(replica: number): Breaker {
      const owner = { set, server, tool, endpoint: endpoints[replica] ?? '', replica }
      const key = { kind: BREAKER, ...owner, overrides, config }
      const found = context.state.get(key, () => new Breaker(config, context, owner))
      found.catchUp(holds)
      return found
    }
    return (next) => (call) => {
      const replica = call.replica ?? 0
      return (breakers[replica] ??= breakerOf(replica)).run(call, next, backAt)
    }
  },
}

type BreakerOrder = 'open' | 'close' | 'reset'

/**
 * How often the open time may end early because the server is reachable, before a call succeeds. A server that accepts
 * and fails every call needs a rest.
 */
const MOST_EARLY = 3

/** Returns when a replica was last found reachable again, on the monotonic clock. */
type BackAt = (replica: number) => Millis

/**
 * A breaker: windows decide when to open, opossum holds the state. The breaker reads the clock only when a call
 * arrives, so it needs no timer and no `close()`: older chains may continue to use it.
 */
export class Breaker {
  readonly #config: BreakerConfig
  readonly #clock: Clock
  /** The replica index changes when the endpoint moves within the config. */
  readonly #owner: { -readonly [Key in keyof BreakerOwner]: BreakerOwner[Key] }
  readonly #window: HealthWindow
  readonly #machine: Machine
  /** Whether the last counted failure was a lost connection, as when the server is down. */
  #wasConnectionLost = false
  /** How often the open time has ended early since the last success. */
  #early = 0

  constructor(
    config: BreakerConfig,
    context: Pick<PolicyContext, 'clock' | 'random' | 'emit'>,
    owner: BreakerOwner,
  ) {
    this.#config = config
    this.#clock = context.clock
    this.#owner = { ...owner }
    this.#window = new HealthWindow(config)
    this.#machine = new Machine(config, context, this.#owner, () => this.#window.reset())
  }

  get state(): string {
    return this.#machine.state
  }

  run(call: Call, next: Service, backAt: BackAt): Promise<Outcome> {
    const machine = this.#machine
    if (machine.state !== 'closed') return this.#guard(call, next, backAt)
    const { record } = call
    const { generation } = machine
    const startedAt = this.#clock.now()
    const askedBefore = askedMs(record, startedAt)
    return next(call).then((outcome) => {
      // A call that started before a change of state does not count in the new state.
      if (generation !== machine.generation) return outcome
      const now = this.#clock.now()
      const ranMs = ran(record, startedAt, askedBefore, now)
      const sample = judge(outcome, call, ranMs)
      this.#note(sample, outcome)
      const trip = this.#window.add(sample, ranMs, now)
      if (trip !== undefined) machine.open(trip)
      return outcome
    })
  }

  /**
   * Applies a manual order. `open` holds the breaker open until closed or reset, `close` closes it with empty windows,
   * `reset` makes it like new. After `close` or `reset`, the breaker decides by itself again.
   */
  force(order: BreakerOrder): void {
    if (order === 'open') this.#machine.hold()
    else this.#machine.close(order === 'reset')
  }

  /** Applies orders an operator gave before this breaker existed, or while its endpoint or its set was gone. */
  catchUp(holds: Holds): void {
    const isHeld = holds.since(this.#owner.tool) !== false
    if (isHeld !== this.#machine.manual) this.force(isHeld ? 'open' : 'close')
  }

  moved(replica: number): void {
    this.#owner.replica = replica
  }

  snapshot(): BreakerSnapshot {
    const { state, trip, manual, since, openForMs, generation } = this.#machine
    const now = this.#clock.now()
    const timed = state === 'open' && !manual
    return {
      state,
      since: this.#clock.wall() - (now - since),
      dimension: trip?.dimension,
      why: trip?.why,
      manual,
      availability: this.#window.availability(now),
      correctness: this.#window.correctness(now),
      slow: this.#window.slow(now),
      consecutive: this.#window.consecutive,
      openForMs: timed ? openForMs : undefined,
      nextProbeInMs: timed ? this.#machine.waitMs(now) : undefined,
      generation,
    }
  }

  #guard(call: Call, next: Service, backAt: BackAt): Promise<Outcome> {
    const machine = this.#machine
    const waitMs = machine.waitMs(this.#clock.now())
    if (machine.state === 'open' && waitMs > 0) {
      if (!this.#isBack(backAt)) return Promise.resolve(refusedOpen(this.#owner, machine.trip?.why, waitMs))
      this.#early++
      if (this.#wasConnectionLost) {
        // The only problem was an unreachable server: there is nothing left to probe.
        machine.recover('reachable again')
        return this.run(call, next, backAt)
      }
    }
    if (machine.state === 'open') machine.halfOpen()
    const { probes } = machine
    const probe = probes?.begin(call.record)
    if (probes === undefined || probe === undefined)
      return Promise.resolve(refusedProbing(this.#owner, machine.trip, this.#config.probeTimeout))
    return this.#try(call, next, probes, probe)
  }

  /** Returns whether the server is back since the breaker opened, before the open time is over. */
  #isBack(backAt: BackAt): boolean {
    const { manual, since } = this.#machine
    return !manual && this.#early < MOST_EARLY && backAt(this.#owner.replica) >= since
  }

  #note(sample: HealthSample, outcome: Outcome): void {
    if (sample === 'neutral' || sample === 'caller_timeout') return
    this.#wasConnectionLost = sample === 'failed' && isConnectionLost(outcome)
    if (sample !== 'failed') this.#early = 0
  }

  #try(call: Call, next: Service, probes: HalfOpenProbes, probe: Probe): Promise<Outcome> {
    const { record } = call
    const startedAt = this.#clock.now()
    const askedBefore = askedMs(record, startedAt)
    return next(call).then((outcome) => {
      const ranMs = ran(record, startedAt, askedBefore, this.#clock.now())
      const sample = judge(outcome, call, ranMs)
      this.#note(sample, outcome)
      const fault = this.#window.faultOf(sample, ranMs)
      if (fault !== undefined) probes.failed(probe, fault)
      else if (sample === 'neutral' || sample === 'caller_timeout') probes.neutral(probe)
      else probes.passed(probe)
      return outcome
    })
  }
}

/** Returns how long an attempt ran, in milliseconds, without the time spent asking the agent. */
function ran(record: CallRecord, startedAt: Millis, askedBefore: Millis, now: Millis): Millis {
  return now - startedAt - (askedMs(record, now) - askedBefore)
}
