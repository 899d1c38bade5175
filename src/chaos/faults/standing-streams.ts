import { z } from 'zod'
import type { Layer } from '../../mesh/call.ts'
import type { WireIncident, WireShape } from '../../mesh/wire-shape.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, Injection } from '../fault.ts'
import { errorBody, json, shapedBy } from './shared.ts'

/**
 * The common fields of faults of standing streams. The modern era opens such a stream with a request, the legacy era
 * with a GET.
 */
const ofStreams = {
  family: 'stream',
  methods: ['subscriptions/listen'],
  sides: ['upstream', 'client'],
  transports: { only: ['http'], otherwise: 'over {} all messages of a server share one stream' },
} as const

/**
 * Returns a layer that makes an incident happen to a standing stream. Calls `ended` when the stream ends after the
 * incident.
 */
function onStanding(incident: WireIncident, injection: Injection, ended?: () => void): Layer {
  const { clock, released, side } = injection
  return (next) => (call) => {
    const done = { bytes: 0, messages: 0, hasHappened: false }
    const holds = (settled: Promise<void>) => void injection.delaying(call, settled)
    const shape: WireShape = { clock, released, incident, holds, done }
    if (side === 'client') call.channel.wire?.shape?.(shape)
    return next(side === 'client' ? call : shapedBy(call, shape)).then((outcome) => {
      if (done.hasHappened) {
        injection.note({ effect: incident.kind, events: done.messages })
        ended?.()
      } else injection.notReached('the stream had ended before the fault acted')
      return outcome
    })
  }
}

const refusing = z.strictObject({
  status: z
    .int()
    .min(400)
    .max(599)
    .default(405)
    .describe(
      'The HTTP status: 405 means that the server has no such stream, 503 means that the stream is not available now.',
    ),
})

const refused: FaultType<z.output<typeof refusing>> = {
  schema: refusing,
  ...ofStreams,
  about: 'The stream for messages outside calls (GET, or `subscriptions/listen`) is refused.',
  use: 'To test how agents and the gateway learn of changes without notifications.',
  seen: 'No notifications; with `side: client`, the HTTP status.',
  containedBy: {
    policies: [],
    how: 'The gateway also fetches lists at intervals (`refresh`), and requests the stream again after a 5xx or 429, with doubling pauses.',
  },
  options: { status: { sets: 'status' } },
  example: { name: 'no-stream', rate: 0.5, ttl: '10m', match: { server: 'search' }, status: 503 },
  layer:
    ({ status }, injection) =>
    () =>
    (call) => {
      injection.note({ status })
      const error = { code: -32000, message: status === 405 ? 'Method not allowed.' : 'Not available' }
      const raw = json(errorBody('null', error), status)
      return Promise.resolve({ ...injection.reply(call, raw), wire: raw })
    },
}

const afterEvents = z
  .int()
  .min(0)
  .max(10_000)
  .default(1)
  .describe('How many messages pass before the fault acts; with 0, it acts on the next message.')

const cutting = z.strictObject({
  afterEvents,
  after: duration()
    .optional()
    .describe('The longest time from the request for the stream to the fault, even without messages.'),
  how: z
    .enum(['close', 'reset'])
    .default('close')
    .describe('Whether the stream ends, or its connection is reset.'),
  then: z
    .enum(['resume', 'replay', 'gap'])
    .default('resume')
    .describe(
      'How the next stream begins: with the present messages (`resume`), with `events` earlier messages repeated (`replay`), or without `events` messages (`gap`). Only in the legacy era: the modern era resumes nothing.',
    ),
  events: z.int().min(1).max(16).default(1).describe('How many messages are repeated or lost.'),
})

const cut: FaultType<z.output<typeof cutting>> = {
  schema: cutting,
  ...ofStreams,
  about: 'The stream for messages outside calls breaks, again and again, and may resume in the wrong place.',
  use: 'To test that readers resume a stream without a flood of requests, and that nobody relies on each message arriving exactly once.',
  seen: 'Notifications late, twice or not at all.',
  containedBy: {
    policies: [],
    how: 'The gateway requests the stream again from the last event on, with doubling pauses while no message arrives; calls continue.',
  },
  example: {
    name: 'stream-cut',
    rate: 0.5,
    ttl: '10m',
    match: { server: 'search' },
    afterEvents: 3,
    then: 'replay',
    events: 2,
  },
  layer({ afterEvents, after, how, then, events }, injection) {
    const incident: WireIncident = {
      kind: how,
      at: { messages: afterEvents },
      latestMs: after,
    }
    return (next) => (call) => {
      const state = injection.memory(`${call.server} ${call.caller.id}`, () => ({ wasCut: false }))
      const { wire } = call.channel
      if (state.wasCut && then !== 'resume' && wire?.resume !== undefined) {
        injection.note({ begins: then, events })
        wire.resume(then === 'gap' ? events : -events)
      }
      state.wasCut = false
      return onStanding(incident, injection, () => (state.wasCut = true))(next)(call)
    }
  },
}

const stalling = z.strictObject({
  afterEvents: afterEvents.default(0),
  stall: duration({ min: 1 })
    .default(30_000)
    .describe('How long the stream is silent; then all held messages arrive.'),
})

const stall: FaultType<z.output<typeof stalling>> = {
  schema: stalling,
  ...ofStreams,
  about: 'The stream for messages outside calls stays open but is silent for a while.',
  use: 'To test that neither the gateway nor an agent depends on a notification.',
  seen: 'Notifications arrive late.',
  containedBy: {
    policies: [],
    how: 'No call waits for the stream for more than a second, and the gateway also fetches lists at intervals.',
  },
  options: { delay: { sets: 'stall' } },
  example: { name: 'stream-stall', rate: 0.5, ttl: '10m', match: { server: 'search' }, stall: '30s' },
  layer: ({ afterEvents, stall }, injection) =>
    onStanding({ kind: 'stall', at: { messages: afterEvents }, stallMs: stall }, injection),
}

/** Faults of the streams for messages outside calls: from servers to the gateway, and from the gateway to agents. */
export const standingStreamFaults = { 'listen.refused': refused, 'listen.cut': cut, 'listen.stall': stall }
