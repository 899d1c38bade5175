import { askedMs } from '../../mesh/asking.ts'
import { type Call, derive, type Layer, type Outcome, type Service } from '../../mesh/call.ts'
import { wasNeverDelivered } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Scope } from '../../mesh/policy.ts'
import type { Chooser } from './chooser.ts'
import type { Feasibility } from './feasibility.ts'
import type { Homes } from './homes.ts'
import type { Replica } from './replica.ts'
import type { Scores } from './scores.ts'

/** The way to a server with one replica: there is nothing to choose, only something to learn. */
export function toSingle(replica: Replica, scores: Scores, feasibility: Feasibility, clock: Clock): Layer {
  const { load } = replica
  return (next) => (call) => {
    const { record } = call
    const begun = clock.now()
    const leftMs = feasibility.leftMs(call, begun)
    if (leftMs !== undefined && !feasibility.fits(replica, leftMs, begun)) {
      record.infeasible = true
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
  /** Who is at home where; undefined: any replica will do for anybody. */
  readonly homes: Homes | undefined
  readonly backAt: Scope['backAt']
}

const NONE: readonly number[] = []

/** The way to a server with several replicas. */
export function toOneAmong({
  replicas,
  chooser,
  scores,
  feasibility,
  clock,
  homes,
  backAt,
}: AmongParts): Layer {
  /** The replica that the call has to go to, if there is one. */
  function boundTo(call: Call, now: Millis): Replica | undefined {
    return call.replica === undefined ? homes?.of(call, now) : replicas[call.replica]
  }

  /** The replica for a call that may go to any. */
  function choose(call: Call, tried: readonly number[], now: Millis): Replica | undefined {
    return homes?.place(call, tried, now) ?? chooser.choose(call, tried, now)
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
        call.record.infeasible = true
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
    // The transport writes it too, but not when it finds no way to the replica.
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
        // What did not get to one replica may go to another: neither its breaker nor its closed port has run anything.
        if (!isRejected && !isUnreached(outcome)) return outcome
        const mayVisit = call.replica === undefined && homes?.mayVisit(call) !== false
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

/** Whether a call found nobody to be sent to. */
function isUnreached(outcome: Outcome): boolean {
  return (
    wasNeverDelivered(outcome) && outcome.kind === 'failed' && outcome.error.reason === 'upstream_unavailable'
  )
}
