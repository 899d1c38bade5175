import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'
import { sample, schema as distribution } from './distributions.ts'

const schema = z.strictObject({ distribution })

/** The call waits before it is sent: of one that is given up meanwhile, the server learns nothing. */
export const latency = {
  schema,
  about: 'The call is sent late, by a delay that is drawn for it.',
  methods: requests,
  layer:
    ({ distribution }, shot) =>
    (next) =>
    (call) => {
      const delayMs = sample(distribution, (purpose) => shot.draw(purpose))
      shot.note({ delayMs: Math.round(delayMs) })
      return shot.pause(delayMs, call).then((how) => (how === 'aborted' ? givenUp(call) : next(call)))
    },
} satisfies FaultType<z.output<typeof schema>>
