import { z } from 'zod'
import { derive, type Call, type Channel, type Outcome, type Layer, type Service } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { WireIncident, WireShape } from '../../mesh/wire-shape.ts'
import { duration, waitDuration } from '../../units/duration.ts'
import { formatQuantity, parseQuantity, quantities, quantityPattern } from '../../units/quantity.ts'
import type { FaultType, Injection } from '../fault.ts'
import { sample, schema as distribution } from './distributions.ts'
import { diverted, refuse, requests, endOf, givenUp, onTheWire, orGivenUp, ownReplies } from './shared.ts'

const units = { B: 1, KiB: 1024, MiB: 1024 ** 2 }

const MAX_BYTES = 256 * units.MiB

const format = (value: number) => formatQuantity(value, units)

/** A number of bytes of the wire: `16B`, `4KiB`, or a bare number; whole, from `min` to 256 MiB. */
function bytes(min: number) {
  const expected = `expected bytes from ${min} to 256MiB, such as 16 or 4KiB`
  return z
    .union(
      [
        z.int(expected).min(min, expected).max(MAX_BYTES, expected),
        z.string().regex(quantityPattern(units), expected),
      ],
      expected,
    )
    .transform((value, context) => {
      const count = typeof value === 'number' ? value : parseQuantity(value, units)
      if (count !== undefined && Number.isInteger(count) && count >= min && count <= MAX_BYTES) return count
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
    .register(quantities, { type: 'size', format })
}

const refusedSchema = z.strictObject({})

/** Nobody is there: the server never gets the call. */
export const refused = {
  schema: refusedSchema,
  family: 'connection',
  about:
    'No connection can be made: the server never gets the call. Towards an agent, who is connected by then, its connection is reset when its request has come.',
  use: 'To test the first line of defence: a server that is down, with calls that are safe to repeat.',
  seen: 'Nothing when another attempt succeeds, or an error at once.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The call was never sent, so that even a write may be tried again; the gate of the server holds calls until it is back.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  runsAsAsked: true,
  aliases: { 'chaos-monkey': ['connection-refused'] },
  example: { name: 'refused', rate: 0.2, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) => () => (call) => {
    injection.note({ effect: 'refused' })
    return Promise.resolve(refuse(call, injection))
  },
} satisfies FaultType<z.output<typeof refusedSchema>>

const dnsSchema = z.strictObject({
  code: z
    .enum(['ENOTFOUND', 'EAI_AGAIN'])
    .default('ENOTFOUND')
    .describe('There is no such name, or no resolver that can say.'),
  delay: duration()
    .default(0)
    .describe('How long the resolver takes to say so; `timeouts.connect` of the server ends it earlier.'),
})

/** The resolver has nothing for the name of the server, which never gets the call. */
export const dns = {
  schema: dnsSchema,
  family: 'connection',
  about: 'The name of the server cannot be looked up: the server never gets the call.',
  use: 'To test a resolver that fails or is slow, with calls that are safe to repeat.',
  seen: 'Nothing when another attempt succeeds, or an error, late where the resolver is slow.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The call was never sent, so that even a write may be tried again; `timeouts.connect` ends a lookup that takes too long.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: { only: ['http', 'sse'], otherwise: 'a server over {} has no name to look up' },
  refuses: ({ address }) =>
    address?.isNamed === false ? 'its address is a number: there is no name to look up' : undefined,
  runsAsAsked: true,
  example: {
    name: 'dns',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'remote' },
    code: 'EAI_AGAIN',
    delay: '2s',
  },
  layer:
    ({ code, delay }, injection) =>
    (next) =>
    async (call) => {
      const { end, leave } = endOf(call)
      const looked: Promise<Waited> =
        delay === 0 ? Promise.resolve('over') : injection.pause(delay, derive(call, { signal: end }), false)
      let waited: Waited | undefined
      const after = looked.then((how) => (waited = how))
      const error = await injection.faultEnvironment.failToConnect(call, { of: 'name', code, after })
      end.abort(undefined)
      leave()
      if (error === undefined) {
        injection.notApplicable('its address is a number: there is no name to look up')
        return next(call)
      }
      if (waited === 'released') return next(call)
      if (call.signal.aborted) return givenUp(call)
      injection.note({ effect: code, ...(delay > 0 && { delayMs: delay }) })
      return { kind: 'failed', error }
    },
} satisfies FaultType<z.output<typeof dnsSchema>>

const tlsSchema = z.strictObject({
  reason: z
    .enum(['expired', 'self_signed', 'wrong_host', 'handshake'])
    .default('expired')
    .describe(
      "What is wrong: the server's certificate has expired, is signed by itself, or is for another host; or the server refuses the handshake.",
    ),
})

/** There is a server, and no way to talk to it: nothing of the call is sent before the handshake is done. */
export const tls = {
  schema: tlsSchema,
  family: 'connection',
  about:
    'The TLS handshake with the server fails: the server never gets the call. Only of servers with an https address.',
  use: 'To test the night on which a certificate expires.',
  seen: 'Nothing when another replica answers, or an error at once.',
  containedBy: {
    policies: ['gate', 'retry', 'route'],
    how: 'The call was never sent, so that even a write may be tried again, at another replica; the gate holds calls when there is none.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: { only: ['http', 'sse'], otherwise: 'there is no TLS over {}' },
  refuses: ({ address }) => (address?.isSecure === false ? 'its address is no https address' : undefined),
  runsAsAsked: true,
  example: { name: 'tls', rate: 0.1, ttl: '10m', match: { server: 'remote' }, reason: 'expired' },
  layer:
    ({ reason }, injection) =>
    (next) =>
    async (call) => {
      const error = await injection.faultEnvironment.failToConnect(
        call,
        reason === 'handshake' ? { of: 'handshake' } : { of: 'certificate', flaw: reason },
      )
      if (error === undefined) {
        injection.notApplicable('no certificate of it is refused (tls.rejectUnauthorized is false)')
        return next(call)
      }
      if (injection.released.aborted) {
        injection.notReached('it had ended before the handshake failed')
        return next(call)
      }
      injection.note({ effect: reason })
      return { kind: 'failed', error }
    },
} satisfies FaultType<z.output<typeof tlsSchema>>

const resetSchema = z.strictObject({
  at: z
    .union([
      z.literal('headers'),
      z.strictObject({
        afterBytes: bytes(0).describe('So many bytes of the body arrive, and none after them.'),
      }),
      z.strictObject({
        after: duration({ min: 1 }).describe('So long after the call was sent, unless the reply has come.'),
      }),
    ])
    .default('headers')
    .describe(
      'When the connection is reset: before the first byte of the reply, after so many bytes of its body, or after a time.',
    ),
})

type ResetConfig = z.output<typeof resetSchema>

/**
 * The connection is reset while the reply comes: the server had the call and may have run it, and nobody will know. The
 * bytes before that arrive, with a head that promises more; the real connection to the server is reset as well.
 */
export const reset = {
  schema: resetSchema,
  family: 'connection',
  about: 'The connection is reset while the reply comes: the call may have run.',
  use: 'To test the hardest failure of a write: the connection breaks when the server may have run the call.',
  seen: 'Nothing, or an error that says that the call may have run.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'Only calls that read are retried, because the others may have run.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  aliases: { 'chaos-monkey': ['connection-drop'] },
  example: { name: 'reset', rate: 0.1, ttl: '10m', match: { server: 'search' }, at: 'headers' },
  layer({ at }, injection) {
    const nothing = ({ bytes: size }: { bytes: number }) =>
      at !== 'headers' && 'after' in at ? 'the reply came in time' : `the reply has ${size} bytes only`
    return onTheWire({ incident: resetAt(at), nothing }, injection)
  },
} satisfies FaultType<ResetConfig>

function resetAt(at: ResetConfig['at']): WireIncident {
  if (at === 'headers') return { kind: 'reset', at: 'head' }
  if ('after' in at) return { kind: 'reset', at: { bytes: Infinity }, latestMs: at.after }
  return { kind: 'reset', at: { bytes: at.afterBytes } }
}

/** How a wait was over; that of `Injection.pause`. */
type Waited = 'over' | 'released' | 'aborted'

/**
 * A slow way home for one call: each message of the server, and at last its reply, waits its turn and then its time. The
 * sender has to wait as well, as behind a socket that is full. When the call is given up, the messages still on their way
 * are dropped.
 */
class SlowWay {
  /** To be put in place of the call's own. */
  readonly channel: Channel
  readonly #call: Call
  readonly #wait: () => Promise<Waited>
  #last: Promise<unknown> = Promise.resolve()

  /** `wait` is asked for each message. */
  constructor(call: Call, wait: () => Promise<Waited>) {
    const { channel } = call
    this.#call = call
    this.#wait = wait
    this.channel = diverted(channel, {
      open: () => void this.#inTurn(() => channel.open()),
      pause: (retryMs, askNow) => void this.#inTurn(() => channel.pause(retryMs, askNow)),
      send: (message, answer) => this.#inTurn(() => channel.send(message, answer)),
    })
  }

  /** Brings the outcome home. */
  bring(outcome: Outcome): Promise<Outcome> {
    const brought = this.#inTurn(() => outcome).then((home) => home ?? givenUp(this.#call))
    return orGivenUp(brought, this.#call)
  }

  #inTurn<Done>(task: () => Done | Promise<Done>): Promise<Done | undefined> {
    const done = this.#last
      .then(() => this.#wait())
      .then((waited) => (waited === 'aborted' ? undefined : task()))
    // A message that could not be delivered holds up none behind it.
    this.#last = done.catch(() => undefined)
    return done
  }
}

/** Holds everything back until the silence is over, and then breaks the connection off; what was held is dropped. */
function failing(
  call: Call,
  next: Service,
  injection: Injection,
  silence: Promise<Waited>,
): Promise<Outcome> {
  const { end, leave } = endOf(call)
  const broken = silence.then((waited) => (waited === 'over' ? ('aborted' as const) : waited))
  const way = new SlowWay(call, () => broken)
  const answered = next(derive(call, { channel: way.channel, signal: end })).then((outcome) =>
    way.bring(outcome),
  )
  const cut = silence.then((waited) => {
    if (waited !== 'over') return answered
    const message = 'nothing came over the connection (ETIMEDOUT)'
    injection.note({ effect: 'reset' })
    const outcome = injection.disconnect(call, message)
    const reason = injection.side === 'client' ? 'cancelled' : 'upstream_disconnected'
    end.abort(gatewayError(reason, message, { sent: true }))
    return outcome
  })
  return cut.finally(leave)
}

const halfOpenSchema = z.strictObject({
  hold: duration({ min: 1 }).default(60_000).describe('How long nothing comes back.'),
  then: z
    .enum(['pass', 'fail'])
    .default('pass')
    .describe('What comes then: all that was held back, or the end of the connection.'),
})

/**
 * The server gets the call and may run it, but nothing comes back, neither its reply nor a message, until `hold` is
 * over, the fault ends, or the caller gives up. Then the way is free, as after a hole in the network; or, once `hold` is
 * over, the connection is given up, as by whoever waits no longer.
 */
export const halfOpen = {
  schema: halfOpenSchema,
  family: 'connection',
  about: 'The server gets the call, and nothing comes back for as long as it holds.',
  use: 'To check that every call has an end when packets are dropped without an error.',
  seen: 'A timeout.',
  containedBy: {
    policies: ['overdue', 'attemptTimeout', 'deadline'],
    how: 'Reads are sent once more when another call has shown that the server answers; timeouts end all others.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  aliases: { 'chaos-monkey': ['timeout'] },
  options: { delay: { sets: 'hold' } },
  example: { name: 'half-open', rate: 0.05, ttl: '10m', match: { server: 'search' }, hold: '60s' },
  layer:
    ({ hold, then }, injection) =>
    (next) =>
    (call) => {
      injection.note({ holdMs: hold })
      const silence = injection.pause(hold, call)
      if (then === 'fail') return failing(call, next, injection, silence)
      const way = new SlowWay(call, () => silence)
      return next(derive(call, { channel: way.channel })).then((outcome) => way.bring(outcome))
    },
} satisfies FaultType<z.output<typeof halfOpenSchema>>

const latencySchema = z.strictObject({ distribution })

/** The call waits before it is sent: of one that is given up meanwhile, the server learns nothing. */
export const latency = {
  schema: latencySchema,
  family: 'connection',
  about: 'The call is sent late, by a delay that is drawn for it.',
  use: 'To see what slow servers do to an agent, with fixed delays or with a measured distribution.',
  seen: 'The answer comes later.',
  containedBy: {
    policies: ['attemptTimeout', 'hedge'],
    how: 'A timeout bounds the wait, and a hedged second attempt often is the faster one.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  runsAsAsked: true,
  aliases: { 'mcp-chaos': ['latency'], 'chaos-monkey': ['latency'] },
  options: { delay: { sets: 'distribution', as: (delay) => ({ kind: 'fixed', delay }) } },
  example: {
    name: 'latency',
    rate: 0.3,
    ttl: '10m',
    match: { server: 'search' },
    distribution: { kind: 'lognormal', median: '400ms', p99: '4s', cap: '10s' },
  },
  layer:
    ({ distribution }, injection) =>
    (next) =>
    (call) => {
      const delayMs = sample(distribution, (purpose) => injection.draw(purpose))
      injection.note({ delayMs: Math.round(delayMs) })
      return injection.pause(delayMs, call).then((how) => (how === 'aborted' ? givenUp(call) : next(call)))
    },
} satisfies FaultType<z.output<typeof latencySchema>>

const bandwidthSchema = z.strictObject({
  kibPerSecond: z
    .number()
    .positive()
    .max(1_048_576)
    .default(1)
    .describe('How many KiB of a reply come in a second.'),
})

/** A thin wire for each call of its own. */
export const bandwidth = {
  schema: bandwidthSchema,
  family: 'connection',
  about: 'The reply comes at so many KiB per second.',
  use: 'To test timeouts against a connection that always moves, but far too slowly.',
  seen: 'The answer trickles in.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Both limit the total time; an idle timeout would begin again with every byte.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'bandwidth', rate: 0.1, ttl: '10m', match: { server: 'search' }, kibPerSecond: 4 },
  layer: ({ kibPerSecond }, injection) => trickle(portionOf(kibPerSecond * 1024), injection),
} satisfies FaultType<z.output<typeof bandwidthSchema>>

const dripSchema = z.strictObject({
  chunk: bytes(1).default(16).describe('How much comes at a time.'),
  gap: duration({ min: 1 }).default(100).describe('Between one chunk and the next.'),
})

/** Never silent for long, and never done: a timeout that begins anew with each byte does not see it. */
export const slowDrip = {
  schema: dripSchema,
  family: 'connection',
  about: 'The reply comes in small chunks with gaps between them.',
  use: 'To test timeouts against a server that sends a few bytes at a time, as in a slow-read attack.',
  seen: 'The answer trickles in, chunk by chunk.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Both limit the total time; an idle timeout would begin again with every chunk.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'slow-drip', rate: 0.1, ttl: '10m', match: { server: 'search' }, chunk: 16, gap: '100ms' },
  layer: ({ chunk, gap }, injection) => trickle({ bytes: chunk, gapMs: gap }, injection),
} satisfies FaultType<z.output<typeof dripSchema>>

/** Between two portions of a thin wire, in milliseconds. */
const PORTION_MS: Millis = 50

/** Returns the size of a portion, and the gap after it, with which so many bytes pass in a second. */
function portionOf(bytesPerSecond: number): Pace {
  const portion = Math.max(1, Math.round((bytesPerSecond * PORTION_MS) / 1_000))
  return { bytes: portion, gapMs: (portion * 1_000) / bytesPerSecond }
}

type Pace = NonNullable<WireShape['pace']>

/** Bytes of the reply's body, whether it is one answer or a stream of events, come in portions. */
function trickle(pace: Pace, injection: Injection): Layer {
  return onTheWire({ pace, nothing: ({ bytes: size }) => `the reply has ${size} bytes only` }, injection)
}

const flapSchema = z.strictObject({
  up: duration({ min: 1 }).default(30_000).describe('How long calls go through, the first time and again.'),
  down: duration({ min: 1 }).default(10_000).describe('How long there is no server after that.'),
})

/** Up and down by turns, from the first call on that it is aimed at, and for all servers at once. */
export const flap = {
  schema: flapSchema,
  family: 'connection',
  about: 'The server is there and gone by turns; while gone, no connection can be made.',
  use: 'To test what becomes of calls to a server that comes and goes.',
  seen: 'Errors and answers by turns.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The gate holds calls while the server is away, and lets them go when it is back.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'flap', rate: 1, ttl: '10m', match: { server: 'search' }, up: '30s', down: '10s' },
  layer:
    ({ up, down }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const { since } = injection.memory('flap', () => ({ since: now }))
      const phaseMs = (now - since) % (up + down)
      if (phaseMs < up) {
        injection.notApplicable(`up for another ${waitDuration(up - phaseMs)}`)
        return next(call)
      }
      injection.note({ effect: 'refused', downForMs: Math.ceil(up + down - phaseMs) })
      return Promise.resolve(refuse(call, injection))
    },
} satisfies FaultType<z.output<typeof flapSchema>>

/** Faults of the way between the gateway and a server, or an agent and the gateway. */
export const connectionFaults = {
  'conn.refused': refused,
  'conn.dns': dns,
  'conn.tls': tls,
  'conn.reset': reset,
  'conn.half_open': halfOpen,
  'conn.latency': latency,
  'conn.bandwidth': bandwidth,
  'conn.slow_drip': slowDrip,
  'conn.flap': flap,
}
