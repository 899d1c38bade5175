import { z } from 'zod'
import { derive, type Layer } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { requests } from '../shared/requests.ts'
import { bytes, sizeOf } from './bytes.ts'
import { SlowWay } from './slow-way.ts'

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
  about: 'The reply comes at so many KiB per second.',
  methods: requests,
  layer: ({ kibPerSecond }, shot) => trickle(shot, (size) => (size * 1000) / (kibPerSecond * 1024)),
} satisfies FaultType<z.output<typeof bandwidthSchema>>

const dripSchema = z.strictObject({
  chunk: bytes(1).default(16).describe('How much comes at a time.'),
  gap: duration({ min: 1 }).default(100).describe('Between one chunk and the next.'),
})

/** Never silent for long, and never done: a timeout that begins anew with each byte does not see it. */
export const slowDrip = {
  schema: dripSchema,
  about: 'The reply comes in small chunks with gaps between them.',
  methods: requests,
  layer: ({ chunk, gap }, shot) => trickle(shot, (size) => Math.max(0, Math.ceil(size / chunk) - 1) * gap),
} satisfies FaultType<z.output<typeof dripSchema>>

/**
 * Replies, and the messages before them, arrive when their last byte would: whole messages are all that the mesh
 * passes on, so the wait is that for all of their bytes.
 */
function trickle(shot: Shot, timeFor: (bytes: number) => Millis): Layer {
  return (next) => (call) => {
    const way = new SlowWay(call, (size) =>
      size === 0 ? Promise.resolve('over') : shot.pause(timeFor(size), call),
    )
    return next(derive(call, { channel: way.channel })).then((outcome) => {
      if (outcome.kind === 'answered') {
        const size = sizeOf(outcome.result)
        shot.note({ bytes: size, delayMs: Math.round(timeFor(size)) })
      } else shot.notApplicable('there was no reply to slow down')
      return way.bring(outcome)
    })
  }
}
