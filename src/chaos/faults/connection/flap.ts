import { z } from 'zod'
import { duration } from '../../../units/duration.ts'
import type { FaultType } from '../../fault.ts'
import { refuse } from '../shared/refuse.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({
  up: duration({ min: 1 }).default(30_000).describe('How long calls go through, the first time and again.'),
  down: duration({ min: 1 }).default(10_000).describe('How long there is no server after that.'),
})

/** Up and down by turns, from the first call on that it is aimed at, and for all servers at once. */
export const flap = {
  schema,
  about: 'The server is there and gone by turns; while gone, no connection can be made.',
  methods: requests,
  layer:
    ({ up, down }, shot) =>
    (next) =>
    (call) => {
      const now = shot.clock.now()
      const { since } = shot.memory('flap', () => ({ since: now }))
      const phaseMs = (now - since) % (up + down)
      if (phaseMs < up) {
        shot.notApplicable(`up for another ${Math.ceil(up - phaseMs)} ms`)
        return next(call)
      }
      shot.note({ effect: 'refused', downForMs: Math.ceil(up + down - phaseMs) })
      return Promise.resolve(refuse(call, shot))
    },
} satisfies FaultType<z.output<typeof schema>>
