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

/** A number of bytes on the wire: `16B`, `4KiB`, or a bare number; whole, from `min` to 256 MiB. */
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

/** No connection to the server can be made: the server never gets the call. */
export const refused = {
  schema: refusedSchema,
  family: 'connection',
  about:
    'No connection can be made: the server never gets the call. With `side: client` the agent is already connected, so its connection is reset after its request has arrived.',
  use: 'To test the first line of defence: a server that is down, with calls that are safe to repeat.',
  seen: 'Nothing when another attempt succeeds, or an error at once.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The call was never sent, so retry may repeat even a write. The gate of the server holds calls until the server is back.',
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
    .describe('ENOTFOUND: the name does not exist. EAI_AGAIN: the resolver has no answer for now.'),
  delay: duration()
    .default(0)
    .describe('How long the resolver takes; `timeouts.connect` of the server ends the lookup earlier.'),
})

/** The resolver has no address for the name of the server; the server never gets the call. */
export const dns = {
  schema: dnsSchema,
  family: 'connection',
  about: 'The name of the server does not resolve: the server never gets the call.',
  use: 'To test a failing or slow resolver, with calls that are safe to repeat.',
  seen: 'Nothing when another attempt succeeds, or an error, late when the resolver is slow.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The call was never sent, so retry may repeat even a write; `timeouts.connect` ends a slow lookup.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: { only: ['http', 'sse'], otherwise: 'a server over {} has no name to look up' },
  refuses: ({ address }) =>
    address?.isNamed === false
      ? 'the address of the server is a number: there is no name to look up'
      : undefined,
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
        injection.notApplicable('the address of the server is a number: there is no name to look up')
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
      "The cause: the server's certificate has expired, is self-signed, or is for another host; or the server refuses the handshake.",
    ),
})

/** The server is up, but the handshake fails: no part of the call is sent before. */
export const tls = {
  schema: tlsSchema,
  family: 'connection',
  about:
    'The TLS handshake with the server fails: the server never gets the call. Only for servers with an https address.',
  use: 'To test the night on which a certificate expires.',
  seen: 'Nothing when another replica answers, or an error at once.',
  containedBy: {
    policies: ['gate', 'retry', 'route'],
    how: 'The call was never sent, so retry may repeat even a write, at another replica. The gate holds calls when there is no other replica.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: { only: ['http', 'sse'], otherwise: 'there is no TLS over {}' },
  refuses: ({ address }) =>
    address?.isSecure === false ? 'the address of the server is no https address' : undefined,
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
        injection.notApplicable(
          'the gateway accepts every certificate of the server (tls.rejectUnauthorized is false)',
        )
        return next(call)
      }
      if (injection.released.aborted) {
        injection.notReached('the fault had ended before the handshake failed')
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
        afterBytes: bytes(0).describe('How many bytes of the body arrive before the reset.'),
      }),
      z.strictObject({
        after: duration({ min: 1 }).describe(
          'How long after the call was sent the reset comes, unless the reply has arrived.',
        ),
      }),
    ])
    .default('headers')
    .describe(
      'When the connection is reset: before the first byte of the reply, after this many bytes of its body, or after a time.',
    ),
})

type ResetConfig = z.output<typeof resetSchema>

/**
 * Resets the connection while the reply arrives: the server got the call and may have run it, and nobody will know. The
 * bytes before the reset arrive, with a head that promises more. The real connection to the server is reset as well.
 */
export const reset = {
  schema: resetSchema,
  family: 'connection',
  about: 'The connection is reset while the reply arrives: the call may have run.',
  use: 'To test the hardest failure of a write: the connection breaks when the server may have run the call.',
  seen: 'Nothing, or an error that says that the call may have run.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'Only reads are retried, because other calls may have run.',
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

/** The reason why a wait ended; the result of `Injection.pause`. */
type Waited = 'over' | 'released' | 'aborted'

/**
 * A slow return path for one call. The messages of the server, and finally the reply, pass one after another, each
 * after a wait. The sender waits too, as with a full socket. When the caller gives up, waiting messages are dropped.
 */
class SlowWay {
  /** Replaces the call's own channel. */
  readonly channel: Channel
  readonly #call: Call
  readonly #wait: () => Promise<Waited>
  #last: Promise<unknown> = Promise.resolve()

  /** `wait` is called before each message and before the reply. */
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

  /** Returns the outcome after all earlier messages have passed, or a failure when the caller gives up. */
  bring(outcome: Outcome): Promise<Outcome> {
    const brought = this.#inTurn(() => outcome).then((home) => home ?? givenUp(this.#call))
    return orGivenUp(brought, this.#call)
  }

  #inTurn<Done>(task: () => Done | Promise<Done>): Promise<Done | undefined> {
    const done = this.#last
      .then(() => this.#wait())
      .then((waited) => (waited === 'aborted' ? undefined : task()))
    // A message that could not be delivered does not delay later messages.
    this.#last = done.catch(() => undefined)
    return done
  }
}

/**
 * Sends the call, and holds all messages and the reply back. At the end of the silence, breaks the connection and drops
 * the held messages.
 */
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
  hold: duration({ min: 1 }).default(60_000).describe('How long no reply comes back.'),
  then: z
    .enum(['pass', 'fail'])
    .default('pass')
    .describe('What follows: `pass` delivers all held messages, and `fail` breaks the connection.'),
})

/**
 * The server gets the call and may run it, but no reply and no message comes back. The silence lasts until `hold` is
 * over, the fault ends, or the caller gives up. Then messages pass again, as after a network failure. With `then:
 * fail`, the connection breaks once `hold` is over, as after a timeout.
 */
export const halfOpen = {
  schema: halfOpenSchema,
  family: 'connection',
  about: 'The server gets the call, and nothing comes back for as long as `hold` says.',
  use: 'To check that every call ends when packets are dropped without an error.',
  seen: 'A timeout.',
  containedBy: {
    policies: ['overdue', 'attemptTimeout', 'deadline'],
    how: 'overdue sends reads once more when another call has shown that the server answers; timeouts end all other calls.',
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

/** Delays the call before sending: the server never gets a call that was given up during the delay. */
export const latency = {
  schema: latencySchema,
  family: 'connection',
  about: 'The call is sent late, after a fixed or random delay.',
  use: 'To see how slow servers affect an agent, with fixed delays or with a measured distribution.',
  seen: 'The answer comes later.',
  containedBy: {
    policies: ['attemptTimeout', 'hedge'],
    how: 'A timeout bounds the wait, and a hedged second attempt is often faster.',
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
    .describe('How many KiB of a reply arrive per second.'),
})

/** Limits the speed of each reply separately. */
export const bandwidth = {
  schema: bandwidthSchema,
  family: 'connection',
  about: 'The reply arrives at a fixed number of KiB per second.',
  use: 'To test timeouts against a connection that always transfers bytes, but far too slowly.',
  seen: 'The answer trickles in.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Both limit the total time; an idle timeout would restart with every byte.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'bandwidth', rate: 0.1, ttl: '10m', match: { server: 'search' }, kibPerSecond: 4 },
  layer: ({ kibPerSecond }, injection) => trickle(portionOf(kibPerSecond * 1024), injection),
} satisfies FaultType<z.output<typeof bandwidthSchema>>

const dripSchema = z.strictObject({
  chunk: bytes(1).default(16).describe('How many bytes arrive at a time.'),
  gap: duration({ min: 1 }).default(100).describe('The pause between two chunks.'),
})

/** Sends a reply in small chunks with gaps: a timeout that restarts with each byte never ends the wait. */
export const slowDrip = {
  schema: dripSchema,
  family: 'connection',
  about: 'The reply arrives in small chunks with gaps between them.',
  use: 'To test timeouts against a server that sends a few bytes at a time, as in a slow-read attack.',
  seen: 'The answer trickles in, chunk by chunk.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Both limit the total time; an idle timeout would restart with every chunk.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'slow-drip', rate: 0.1, ttl: '10m', match: { server: 'search' }, chunk: 16, gap: '100ms' },
  layer: ({ chunk, gap }, injection) => trickle({ bytes: chunk, gapMs: gap }, injection),
} satisfies FaultType<z.output<typeof dripSchema>>

/** Time between two portions of a slow reply, in milliseconds. */
const PORTION_MS: Millis = 50

/** Returns the size of a portion, and the gap after each portion, for this many bytes per second. */
function portionOf(bytesPerSecond: number): Pace {
  const portion = Math.max(1, Math.round((bytesPerSecond * PORTION_MS) / 1_000))
  return { bytes: portion, gapMs: (portion * 1_000) / bytesPerSecond }
}

type Pace = NonNullable<WireShape['pace']>

/** Returns a layer that sends the body of a reply in portions, for a JSON reply as well as for a stream of events. */
function trickle(pace: Pace, injection: Injection): Layer {
  return onTheWire({ pace, nothing: ({ bytes: size }) => `the reply has ${size} bytes only` }, injection)
}

const flapSchema = z.strictObject({
  up: duration({ min: 1 }).default(30_000).describe('How long the server is up in each cycle.'),
  down: duration({ min: 1 })
    .default(10_000)
    .describe('How long the server is down in each cycle, after the time up.'),
})

/** Makes all matching servers alternate between up and down at the same times, beginning with the first hit call. */
export const flap = {
  schema: flapSchema,
  family: 'connection',
  about: 'The server is up and down by turns; while it is down, no connection can be made.',
  use: 'To test calls to a server that comes and goes.',
  seen: 'Errors and answers by turns.',
  containedBy: {
    policies: ['gate', 'retry'],
    how: 'The gate holds calls while the server is away, and releases them when it is back.',
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

/** Faults of the connection between the gateway and a server, or an agent and the gateway. */
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
