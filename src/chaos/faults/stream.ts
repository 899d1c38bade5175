import { z } from 'zod'
import type { Call, Outcome } from '../../mesh/call.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, Shot } from '../fault.ts'
import { requests } from './shared/requests.ts'
import { breakStream } from './stream/break.ts'
import { onlyProgress } from './stream/progress.ts'
import { stallStream } from './stream/stall.ts'

const afterEvents = z
  .int()
  .min(0)
  .max(10_000)
  .default(1)
  .describe('Messages that pass before it happens; an answer that comes earlier is hit itself.')

const broken = z.strictObject({ afterEvents })

const cutting = z.strictObject({
  afterEvents,
  after: duration()
    .optional()
    .describe('When it happens at the latest, though nothing comes; without it, it waits for the stream.'),
})

const cut: FaultType<z.output<typeof cutting>> = {
  schema: cutting,
  about: 'The stream of a reply ends without an answer; the server may have run the call.',
  methods: requests,
  layer: (config, shot) => (next) => (call) =>
    breakStream(call, next, shot, config, () => shot.disconnect(call, 'the stream ended without an answer')),
}

const badFrame: FaultType<z.output<typeof broken>> = {
  schema: broken,
  about: 'An event of the stream is no JSON.',
  methods: requests,
  layer: (config, shot) => (next) => (call) =>
    breakStream(call, next, shot, config, () => garbled(call, shot)),
}

/** What the gateway makes of such an event, or (client) a stream that holds one. */
function garbled(call: Call, shot: Shot): Outcome {
  if (shot.side === 'upstream') {
    const message = 'an event of the stream is no JSON-RPC message'
    return { kind: 'failed', error: gatewayError('bad_reply', message, { sent: true }) }
  }
  // Without an id: that of the call may not be the agent's own.
  const half = '{"jsonrpc":"2.0","result":{"content":[{"type":"te'
  return shot.reply(call, {
    status: 200,
    headers: { 'content-type': 'text/event-stream' },
    body: encodeEvent(half),
  })
}

const stalled = z.strictObject({
  afterEvents,
  stall: duration({ min: 1 }).default(30_000).describe('How long nothing comes.'),
})

const stall: FaultType<z.output<typeof stalled>> = {
  schema: stalled,
  about: 'The stream of a reply falls silent for a while.',
  methods: requests,
  layer: (config, shot) => (next) => (call) => stallStream(call, next, shot, config),
}

const endless = z.strictObject({
  every: duration({ min: 10 }).default(1_000).describe('How often progress is reported.'),
})

const progressForever: FaultType<z.output<typeof endless>> = {
  schema: endless,
  about:
    'Progress, and never a result: an idle timeout does not end it. Only for calls that ask for progress.',
  layer:
    ({ every }, shot) =>
    (next) =>
    (call) =>
      onlyProgress(call, next, shot, every),
}

/** What can happen to the stream of a reply. */
export const streamFaults = {
  'sse.cut': cut,
  'sse.stall': stall,
  'sse.bad_frame': badFrame,
  'sse.progress_forever': progressForever,
}
