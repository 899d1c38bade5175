import { z } from 'zod'
import { derive, type Call, type Layer, type Outcome, type Service } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { WireIncident } from '../../mesh/wire-shape.ts'
import { notificationText } from '../../protocol/jsonrpc.ts'
import { metaOf } from '../../protocol/meta.ts'
import { duration } from '../../units/duration.ts'
import type { Injection, FaultType } from '../fault.ts'
import { diverted, endOf, firstOf, givenUp, onTheWire, ownReplies, requests } from './shared.ts'

const PROGRESS = 'notifications/progress'

/**
 * Holds the answer back and reports progress every `everyMs` instead, until the call is given up or the injection is
 * released. Drops the server's own reports, because progress may only grow. Failures pass at once.
 */
function onlyProgress(call: Call, next: Service, injection: Injection, everyMs: Millis): Promise<Outcome> {
  const token = metaOf(call.message.value, 'params', 'progressToken')
  if (typeof token !== 'string' && typeof token !== 'number') {
    injection.notApplicable('the call asks for no progress')
    return next(call)
  }
  const { end, leave } = endOf(call)
  let active = true
  let reports = 0

  const channel = diverted(call.channel, {
    send(message, answer) {
      if (active && message.value.method === PROGRESS) return undefined
      return call.channel.send(message, answer)
    },
  })

  const ticking = derive(call, { signal: end })
  async function report(): Promise<void> {
    while ((await injection.pause(everyMs, ticking)) === 'over') {
      const params = { progressToken: token, progress: ++reports }
      const value = { jsonrpc: '2.0', method: PROGRESS, params }
      await call.channel.send({ text: notificationText(PROGRESS, params), value })
    }
    active = false
  }

  const reported = report()
  return next(derive(call, { channel })).then(async (outcome) => {
    if (outcome.kind === 'answered') await firstOf(reported, call.signal)
    end.abort(undefined)
    leave()
    injection.note({ reports })
    return outcome.kind === 'answered' && call.signal.aborted ? givenUp(call) : outcome
  })
}

/**
 * Returns a layer that makes an incident happen to the stream of a reply. If the reply is no stream, the incident hits
 * the answer.
 */
function onStream(incident: WireIncident, injection: Injection): Layer {
  injection.note({ effect: incident.kind })
  return onTheWire({ incident, nothing: () => 'there was no message to hit' }, injection)
}

const afterEvents = z
  .int()
  .min(0)
  .max(10_000)
  .default(1)
  .describe(
    'How many messages pass before the fault acts; if the answer comes earlier, the fault hits the answer.',
  )

const broken = z.strictObject({ afterEvents })

const cutting = z.strictObject({
  afterEvents,
  after: duration()
    .optional()
    .describe(
      'The latest time at which the fault acts, even before `afterEvents` messages. Without this field, the fault waits for the messages.',
    ),
})

const cut: FaultType<z.output<typeof cutting>> = {
  schema: cutting,
  family: 'stream',
  about: 'The stream of a reply ends without an answer; the server may have run the call.',
  use: 'To test streams that end early, when the server may have run the call.',
  seen: 'Nothing where the stream can be resumed, or an error; the call may have run.',
  containedBy: {
    policies: ['retry'],
    how: 'A call that only reads is retried, unless a message of it has reached the agent.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'cut', rate: 0.05, ttl: '10m', match: { server: 'search' }, afterEvents: 1 },
  layer: ({ afterEvents, after }, injection) =>
    onStream({ kind: 'close', at: { messages: afterEvents }, latestMs: after }, injection),
}

const badFrame: FaultType<z.output<typeof broken>> = {
  schema: broken,
  family: 'stream',
  about: 'An event of the stream is no JSON.',
  use: 'To check that an unreadable event ends in a clean error.',
  seen: 'A clean error (BW_BAD_REPLY).',
  containedBy: { policies: [], how: 'The transport refuses what it cannot parse.' },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  example: { name: 'bad-frame', rate: 0.05, ttl: '10m', match: { server: 'search' } },
  layer: ({ afterEvents }, injection) =>
    onStream({ kind: 'garble', at: { messages: afterEvents } }, injection),
}

const stalled = z.strictObject({
  afterEvents,
  stall: duration({ min: 1 }).default(30_000).describe('How long the stream is silent.'),
})

const stall: FaultType<z.output<typeof stalled>> = {
  schema: stalled,
  family: 'stream',
  about: 'The stream of a reply falls silent for a while.',
  use: 'To check that a silent stream does not hold a call for ever.',
  seen: 'Silence.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: 'Both limit the total time of a call; `timeouts.idle` of the server ends a long silence earlier.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: ownReplies,
  options: { delay: { sets: 'stall' } },
  example: { name: 'stall', rate: 0.05, ttl: '10m', match: { server: 'search' }, stall: '30s' },
  layer: ({ afterEvents, stall }, injection) =>
    onStream({ kind: 'stall', at: { messages: afterEvents }, stallMs: stall }, injection),
}

const endless = z.strictObject({
  every: duration({ min: 10 }).default(1_000).describe('How often progress is reported.'),
})

const progressForever: FaultType<z.output<typeof endless>> = {
  schema: endless,
  family: 'stream',
  about:
    'Progress, but never a result: an idle timeout does not end the call. Only for calls that ask for progress.',
  use: 'To check that progress without a result cannot hold a call for ever.',
  seen: 'Progress without end.',
  containedBy: {
    policies: ['deadline'],
    how: 'A total time limit ends the call; an idle timeout would restart with every report.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'progress', rate: 0.05, ttl: '10m', match: { server: 'search' }, every: '1s' },
  layer:
    ({ every }, injection) =>
    (next) =>
    (call) =>
      onlyProgress(call, next, injection, every),
}

/** Faults of the stream of a reply. */
export const streamFaults = {
  'sse.cut': cut,
  'sse.stall': stall,
  'sse.bad_frame': badFrame,
  'sse.progress_forever': progressForever,
}
