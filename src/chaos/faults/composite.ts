import { z } from 'zod'
import { type Call, type Outcome, type Service, derive } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { duration, waitDuration } from '../../units/duration.ts'
import type { FaultType, Injection } from '../fault.ts'
import { copyOf, firstOf, givenUp, requests, endOf, speaksHttp, refuse } from './shared.ts'

/** The queue of calls to one server. */
interface Lane {
  /** Settles when the last call in the queue has left. */
  last: Promise<unknown>
  length: number
}

const headOfLineSchema = z.strictObject({
  hold: duration({ min: 1 })
    .default(2_000)
    .describe('How much longer the call at the head of the queue takes.'),
})

const laneOf = ({ server }: Call, memories: Pick<Injection, 'memory'>): Lane =>
  memories.memory<Lane>(server, () => ({ last: Promise.resolve(), length: 0 }))

/** `hol.block`: delays a call, and all later calls to the same server wait until the delayed call has ended. */
export const headOfLine: FaultType<z.output<typeof headOfLineSchema>> = {
  schema: headOfLineSchema,
  family: 'composite',
  about:
    'A call the fault hits is slow. All later matching calls to the same server wait in a queue behind the slow call, and count as hits in `maxInjections`.',
  use: 'To see how one slow call affects all calls that share a connection with it.',
  seen: 'A wait behind a slow call.',
  containedBy: {
    policies: ['bulkhead', 'deadline'],
    how: 'A bulkhead bounds how many calls wait, and the deadline bounds how long.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  catches: (call, memories) => laneOf(call, memories).length > 0,
  example: { name: 'queue', rate: 0.2, ttl: '10m', match: { server: 'search' }, hold: '2s' },
  layer:
    ({ hold }, injection) =>
    (next) =>
    (call) =>
      queued(call, next, injection, hold),
}

async function queued(call: Call, next: Service, injection: Injection, holdMs: Millis): Promise<Outcome> {
  const lane = laneOf(call, injection)
  const enteredAt = injection.clock.now()
  const ahead = lane.length++
  const before = lane.last
  let leave: () => void = () => undefined
  const left = new Promise<void>((resolve) => (leave = resolve))
  // When a call leaves the middle of the queue, later calls still wait for the calls ahead.
  lane.last = before.then(() => left)
  try {
    if (ahead === 0) await injection.pause(holdMs, call)
    else await injection.delaying(call, firstOf(before, injection.released, call.signal))
    injection.note({ ahead, waitedMs: injection.clock.now() - enteredAt })
    return call.signal.aborted ? givenUp(call) : await next(call)
  } finally {
    lane.length--
    leave()
  }
}

const fanoutSchema = z
  .strictObject({
    factor: z.int().min(2).max(100).default(3).describe('How many times each call is sent.'),
  })
  // In a plan, `allowWrites` is among these fields. A write must not run several times, even with permission.
  .refine((fault) => !('allowWrites' in fault && fault.allowWrites === true), {
    path: ['allowWrites'],
    error: 'fanout.amplify sends calls again: it can only hit tools that are known to be read-only',
  })

/** `fanout.amplify`: adds load by sending read-only calls several times. */
export const fanout: FaultType<z.output<typeof fanoutSchema>> = {
  schema: fanoutSchema,
  family: 'composite',
  about:
    'Each call is sent several times, one after another. The agent gets the first answer after the server has answered all copies.',
  use: 'To see how a multiple of the load affects a server and its limits.',
  seen: 'A late answer, because the server gets several copies of each call.',
  containedBy: {
    policies: ['rateLimit'],
    how: 'A rate limit protects the server where its capacity is known.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'fanout', rate: 0.1, ttl: '10m', match: { server: 'search' }, factor: 3 },
  layer:
    ({ factor }, injection) =>
    (next) =>
    (call) =>
      amplified(call, next, injection, factor),
}

async function amplified(call: Call, next: Service, injection: Injection, factor: number): Promise<Outcome> {
  const first = await next(call)
  const { end, leave } = endOf(call)
  let sent = 1
  while (sent < factor && !call.signal.aborted && !injection.released.aborted) {
    const copy = next(copyOf(call, sent++, end))
    await injection.delaying(call, firstOf(copy, injection.released, call.signal))
  }
  // Aborts a copy that is still under way: otherwise the copy would outlive the fault.
  end.abort(gatewayError('cancelled', 'nobody waits for the call any more'))
  leave()
  injection.note({ sent })
  return call.signal.aborted ? givenUp(call) : first
}

const stormSchema = z.strictObject({
  failures: z
    .int()
    .min(1)
    .max(100)
    .default(2)
    .describe(
      'How many attempts of each call fail before an attempt passes. With `sticky`, the fault hits each attempt.',
    ),
})

/** `retry.storm`: makes every layer above retry, so that the server gets many attempts at each call. */
const storm: FaultType<z.output<typeof stormSchema>> = {
  schema: stormSchema,
  family: 'composite',
  about: 'The first attempts of each call fail (over HTTP with 503), so retries multiply.',
  use: 'To check that retries cannot multiply the load of a failing server.',
  seen: 'Nothing, or an error.',
  containedBy: { policies: ['retry'], how: 'The retry budget bounds the share of retries.' },
  methods: requests,
  sides: ['upstream'],
  example: {
    name: 'retry-storm',
    rate: 0.5,
    ttl: '10m',
    match: { server: 'search' },
    failures: 2,
    sticky: true,
  },
  layer:
    ({ failures }, injection) =>
    (next) =>
    (call) => {
      if (call.attempt > failures) {
        injection.notApplicable(`attempt ${call.attempt} passes: the first ${failures} fail`)
        return next(call)
      }
      injection.note({ attempt: call.attempt, of: failures })
      if (!speaksHttp(call, injection)) return Promise.resolve(refuse(call, injection))
      return Promise.resolve(
        injection.reply(call, {
          status: 503,
          headers: { 'content-type': 'text/plain' },
          body: 'Service Unavailable',
        }),
      )
    },
}

const poolSchema = z.strictObject({
  slots: z.int().min(1).max(10_000).default(1).describe('How many calls per server get through at a time.'),
  hold: duration({ min: 1 })
    .default(10_000)
    .describe('How long a call without a slot waits, unless a slot gets free earlier.'),
})

/** `pool.exhaust`: imitates a pool of connections that is too small for its load. */
export const pool: FaultType<z.output<typeof poolSchema>> = {
  schema: poolSchema,
  family: 'composite',
  about: 'Few calls get through at a time; the others wait for a slot.',
  use: 'To test a connection pool too small for its load.',
  seen: 'A wait for a free slot.',
  containedBy: {
    policies: ['bulkhead', 'deadline'],
    how: 'A bulkhead bounds how many calls wait, and the deadline bounds how long.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'pool', rate: 1, ttl: '10m', match: { server: 'search' }, slots: 2, hold: '5s' },
  layer:
    ({ slots, hold }, injection) =>
    (next) =>
    (call) =>
      pooled(
        call,
        next,
        injection,
        injection.memory(call.server, () => new Slots(slots)),
        hold,
      ),
}

async function pooled(
  call: Call,
  next: Service,
  injection: Injection,
  slots: Slots,
  holdMs: Millis,
): Promise<Outcome> {
  let has = slots.take()
  if (!has) {
    const since = injection.clock.now()
    const { end, leave } = endOf(call)
    const grant = () => {
      has = true
      end.abort(undefined)
    }
    slots.wait(grant)
    await injection.pause(holdMs, derive(call, { signal: end }))
    slots.forget(grant)
    leave()
    injection.note({ waitedMs: injection.clock.now() - since })
  } else injection.note({ waitedMs: 0 })
  try {
    return call.signal.aborted ? givenUp(call) : await next(call)
  } finally {
    if (has) slots.give()
  }
}

class Slots {
  #free: number
  readonly #waiting = new Set<() => void>()

  constructor(slots: number) {
    this.#free = slots
  }

  take(): boolean {
    if (this.#free === 0) return false
    this.#free--
    return true
  }

  /** Calls `grant` as soon as the waiting call owns a slot. */
  wait(grant: () => void): void {
    this.#waiting.add(grant)
  }

  forget(grant: () => void): void {
    this.#waiting.delete(grant)
  }

  /** Gives the slot to the longest-waiting call. */
  give(): void {
    for (const grant of this.#waiting) {
      this.#waiting.delete(grant)
      return grant()
    }
    this.#free++
  }
}

const failureDomainSchema = z.strictObject({
  down: duration({ min: 1 })
    .default(10_000)
    .describe('How long an outage lasts; only in effect together with `up`.'),
  up: duration()
    .default(0)
    .describe(
      'How long the servers work between two outages; without `up`, `when.burst` and `rate` alone decide.',
    ),
})

/** `failure_domain`: makes all servers fail at the same times. */
const failureDomain: FaultType<z.output<typeof failureDomainSchema>> = {
  schema: failureDomainSchema,
  family: 'composite',
  about: 'All matching servers refuse connections at the same time.',
  use: 'To test an outage of several servers at once, such as a rack or a region.',
  seen: 'Several servers fail at once.',
  containedBy: {
    policies: ['gate', 'degrade'],
    how: 'The gate of each server holds calls until the server is back, and degrade answers in their place.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: {
    name: 'outage',
    rate: 0.05,
    ttl: '10m',
    match: { server: '*' },
    domain: 'rack-7',
    when: { burst: { meanLength: 8 } },
  },
  layer:
    ({ down, up }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const phase = (now - injection.memory('outages', () => ({ since: now })).since) % (down + up)
      if (up > 0 && phase >= down) {
        injection.notApplicable(`the servers work for another ${waitDuration(down + up - phase)}`)
        return next(call)
      }
      injection.note({ effect: 'refused' })
      return Promise.resolve(refuse(call, injection))
    },
}

const coldStartSchema = z.strictObject({
  delay: duration({ min: 1 }).default(3_000).describe('How long a server takes to start.'),
  idle: duration({ min: 1 })
    .default(60_000)
    .describe('After this time without a call that the fault hits, the server has to start again.'),
})

/** `cold_start`: imitates a server that is stopped while idle. */
export const coldStart: FaultType<z.output<typeof coldStartSchema>> = {
  schema: coldStartSchema,
  family: 'composite',
  about:
    'The first call to each server is slow, and so is the first call after a pause. Calls in the meantime wait too.',
  use: 'To test servers that are stopped while idle.',
  seen: 'The first call is slow.',
  containedBy: {
    policies: ['attemptTimeout', 'hedge'],
    how: 'A timeout bounds the wait; a hedge helps where another replica is warm.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'cold', rate: 1, ttl: '10m', match: { server: 'search' }, delay: '3s', idle: '5m' },
  layer: (config, injection) => (next) => (call) => started(call, next, injection, config),
}

interface Warmth {
  warmAt: Millis
  usedAt: Millis
}

async function started(
  call: Call,
  next: Service,
  injection: Injection,
  { delay, idle }: z.output<typeof coldStartSchema>,
): Promise<Outcome> {
  const now = injection.clock.now()
  const server = injection.memory<Warmth>(call.server, () => ({ warmAt: now + delay, usedAt: now }))
  if (now - Math.max(server.usedAt, server.warmAt) > idle) server.warmAt = now + delay
  server.usedAt = now
  const waitMs = server.warmAt - now
  if (waitMs > 0) {
    await injection.pause(waitMs, call)
    injection.note({ waitedMs: injection.clock.now() - now })
    if (call.signal.aborted) return givenUp(call)
  } else injection.notApplicable('the server is warm')
  const outcome = await next(call)
  server.usedAt = injection.clock.now()
  return outcome
}

/** Faults that hit many calls together. */
export const compositeFaults = {
  'hol.block': headOfLine,
  'fanout.amplify': fanout,
  'retry.storm': storm,
  'pool.exhaust': pool,
  failure_domain: failureDomain,
  cold_start: coldStart,
}
