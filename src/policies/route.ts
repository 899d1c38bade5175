import { z } from 'zod'
import { type Call, derive, type Layer, type Outcome, type Service } from '../mesh/call.ts'
import { attributionOf, wasNeverDelivered } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import { askedMs } from '../mesh/pause-deadline.ts'
import type { Policy, Scope } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import { deadlineInfeasible, Feasibility, infeasible } from './route/feasibility.ts'
import { Affinity } from './route/affinity.ts'
import { Chooser, Ejection, type Replica, replicasOf, UsualTime } from './route/load.ts'

const rate = () => z.number().min(0).max(1)

const ejection = z
  .strictObject({
    consecutive: z
      .int()
      .min(1)
      .default(5)
      .describe('Failures in a row after which a replica is taken out of use.'),
    base: duration({ min: 1 })
      .default(30_000)
      .describe('How long a replica is out of use the first time; each further time adds as much, up to 5m.'),
    maxShare: rate()
      .default(0.1)
      .describe(
        'Largest share of the replicas out of use at once. One replica always may be out of use, the last replica never.',
      ),
  })
  .describe('Takes replicas that only fail out of use for a while.')

const schema = z
  .strictObject({
    affinity: z
      .enum(['auto', 'none'])
      .default('auto')
      .describe(
        'auto: a caller with a session at a stateful replica stays with the replica while it is usable; none: any replica will do.',
      ),
    feasibility: z
      .enum(['off', 'observe', 'enforce'])
      .default('observe')
      .describe(
        'The effect on calls that will probably miss their deadline on every replica: none, counting, or rejection.',
      ),
    threshold: rate().default(0.5).describe('Least probability of an answer in time for a call to be sent.'),
    explore: rate()
      .default(0.03)
      .describe(
        'With `enforce`: share of calls sent although they will probably miss their deadline, to notice when the tool has become faster.',
      ),
    ejection: z
      .union([z.literal(false), ejection])
      .prefault({})
      .describe('Outlier ejection; false: none.'),
  })
  .describe('Sends each attempt to the replica likely to answer soonest.')

/** Chooses the replica for each attempt, and learns from the outcome. */
export const route: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: it matters for servers with several replicas, and costs little otherwise. Use `affinity: none` only for replicas without client state, and `feasibility: enforce` where an early error is better than a late error.',
  reasons: [deadlineInfeasible],
  facts: [infeasible],
  events: {
    ejection: { about: 'A replica is left out for a while: too many of its calls in a row failed.' },
  },
  build(config, context, scope): Layer {
    const { clock, random } = context
    const replicas = replicasOf(context, scope)
    const rule = config.ejection
    const ejection = rule === false ? undefined : new Ejection(rule, replicas, scope, context)
    const scores = new Scores(ejection)
    const feasibility = new Feasibility(config)
    const [only] = replicas
    if (only !== undefined && replicas.length === 1) return toSingle(only, scores, feasibility, clock)
    const chooser = new Chooser(replicas, random)
    const affinity = config.affinity === 'auto' ? new Affinity(replicas, chooser, scope, context) : undefined
    return toOneAmong({ replicas, chooser, scores, feasibility, clock, affinity, backAt: scope.backAt })
  },
}

/** Returns the layer for a server with a single replica. It measures calls, and never chooses. */
function toSingle(replica: Replica, scores: Scores, feasibility: Feasibility, clock: Clock): Layer {
  const { load } = replica
  return (next) => (call) => {
    const { record } = call
    const begun = clock.now()
    const leftMs = feasibility.leftMs(call, begun)
    if (leftMs !== undefined && !feasibility.fits(replica, leftMs, begun)) {
      infeasible.note(record, true)
      const refusal = feasibility.refuse(replica, leftMs, begun)
      if (refusal !== undefined) return Promise.resolve(refusal)
    }
    const askedBefore = askedMs(record, begun)
    const answered = next(call)
    load.inFlight++
    return answered.then(
      (outcome) => {
        const now = clock.now()
        load.inFlight--
        scores.note(replica, call, outcome, now - begun - (askedMs(record, now) - askedBefore), now)
        return outcome
      },
      (defect: unknown) => {
        load.inFlight--
        throw defect
      },
    )
  }
}

interface AmongParts {
  readonly replicas: readonly Replica[]
  readonly chooser: Chooser
  readonly scores: Scores
  readonly feasibility: Feasibility
  readonly clock: Clock
  /** The homes of callers; undefined: any replica will do for any caller. */
  readonly affinity: Affinity | undefined
  readonly backAt: Scope['backAt']
}

const NONE: readonly number[] = []

function toOneAmong({ replicas, chooser, scores, feasibility, clock, affinity, backAt }: AmongParts): Layer {
  /** Returns the only possible replica for a call, if there is one. */
  function boundTo(call: Call, now: Millis): Replica | undefined {
    return call.replica === undefined ? affinity?.of(call, now) : replicas[call.replica]
  }

  function choose(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    return affinity?.place(call, tried, now) ?? chooser.choose(call, tried, now)
  }

  function route(next: Service, call: Call): Promise<Outcome> {
    const now = clock.now()
    for (const { load, index } of replicas) if (load.isEjected(now)) load.readmit(backAt(index))
    const bound = boundTo(call, now)
    let to = (bound ?? choose(call, NONE, now)) as Replica
    const leftMs = feasibility.leftMs(call, now)
    if (leftMs !== undefined && !feasibility.fits(to, leftMs, now)) {
      const better = bound === undefined ? chooser.chooseFitting(feasibility, leftMs, now) : undefined
      if (better === undefined) {
        infeasible.note(call.record, true)
        const refusal = feasibility.refuse(to, leftMs, now)
        if (refusal !== undefined) return Promise.resolve(refusal)
      } else to = better
    }
    return send(next, call, to, NONE, now)
  }

  function send(
    next: Service,
    call: Call,
    to: Replica,
    tried: readonly number[],
    begun: Millis,
  ): Promise<Outcome> {
    const { load, index } = to
    const { record } = call
    const before = record.replica
    const askedBefore = askedMs(record, begun)
    // The transport also writes `record.replica`, but not when it cannot reach the replica.
    record.replica = index
    const answered = next(derive(call, { replica: index }))
    load.inFlight++
    return answered.then(
      (outcome) => {
        const now = clock.now()
        load.inFlight--
        const isRejected = outcome.kind === 'rejected' && outcome.by === 'breaker'
        if (isRejected) record.replica = before
        else scores.note(to, call, outcome, now - begun - (askedMs(record, now) - askedBefore), now)
        record.failedReplica = outcome.kind === 'failed' ? index : undefined
        // A call that did not reach its replica may go to another: a rejection by the breaker and a closed port run
        // nothing.
        if (!isRejected && !isUnreached(outcome)) return outcome
        const mayVisit = call.replica === undefined && affinity?.mayVisit(call) !== false
        if (!mayVisit || call.signal.aborted) return outcome
        const avoided = [...tried, index]
        const other = choose(call, avoided, now)
        return other === undefined ? outcome : send(next, call, other, avoided, now)
      },
      (defect: unknown) => {
        load.inFlight--
        throw defect
      },
    )
  }

  return (next) => (call) => route(next, call)
}

function isUnreached(outcome: Outcome): boolean {
  return (
    wasNeverDelivered(outcome) && outcome.kind === 'failed' && outcome.error.reason === 'upstream_unavailable'
  )
}

class Scores {
  readonly #usual = new UsualTime()
  readonly #ejection: Ejection | undefined

  constructor(ejection: Ejection | undefined) {
    this.#ejection = ejection
  }

  /** Notes how an attempt ended after `ms`, without the wait for an agent's answer. */
  note(replica: Replica, call: Call, outcome: Outcome, ms: Millis, now: Millis): void {
    if (outcome.kind === 'rejected') return
    if (outcome.kind === 'answered') replica.estimate.record(ms, now)
    else if (call.record.sent && wasGivenUp(outcome.error)) replica.estimate.recordCensored(ms, now)
    const { load } = replica
    const slowness = this.#usual.slownessOf(ms)
    switch (attributionOf(outcome, call, ms)) {
      case 'good':
        this.#usual.add(ms)
        load.answered(slowness, now)
        return load.succeeded(now)
      case 'failure':
        load.failed(slowness, now)
        load.broke(ms, now)
        return this.#ejection?.failed(replica, now)
      case 'wrong':
      case 'refused':
        // A refusal is no failure, but a quick refusal must not attract more calls.
        return load.failed(slowness, now)
      case 'caller_error':
        if (outcome.kind === 'answered') load.answered(slowness, now)
        return
      case 'caller_timeout':
      case 'nothing':
        return load.givenUp(slowness, now)
    }
  }
}

function wasGivenUp({ reason }: GatewayError): boolean {
  return reason === 'attempt_timeout' || reason === 'deadline_exceeded' || reason === 'cancelled'
}
