import { z } from 'zod'
import { gatewayError } from '../../mesh/errors.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType } from '../fault.ts'
import { requests } from './shared/requests.ts'

const schema = z.strictObject({
  signal: z
    .enum(['TERM', 'KILL', 'INT', 'HUP', 'QUIT', 'ABRT', 'SEGV'])
    .default('TERM')
    .describe('What ends it.'),
  restartAfter: duration({ min: 1 })
    .optional()
    .describe(
      'How long calls that the fault hits find no process after that; without it, until it is started again.',
    ),
})

/**
 * Ends the server's process. The call that it hits goes on, and fares as a call does whose server has just died.
 * Starting it again is the gateway's business, not the fault's: `restartAfter` keeps away the calls that the fault
 * hits (with a rate below 1, the others may find a new process before).
 */
const kill = {
  schema,
  about: "Ends the server's process.",
  methods: requests,
  sides: ['upstream'],
  refuses: ({ transport }) =>
    transport === 'stdio' ? undefined : `there is no process behind ${transport}; see conn.refused`,
  layer:
    ({ signal, restartAfter }, shot) =>
    (next) =>
    (call) => {
      const now = shot.clock.now()
      const outage = shot.memory(`outage of ${call.server}`, () => ({ until: now }))
      const retryAfterMs = Math.ceil(outage.until - now)
      if (retryAfterMs > 0) {
        shot.note({ effect: 'unavailable', downForMs: retryAfterMs })
        const message = `the server's process ended and is not started again before ${retryAfterMs} ms have passed`
        return Promise.resolve({
          kind: 'failed',
          error: gatewayError('upstream_unavailable', message, { retryAfterMs }),
        })
      }
      if (!shot.world.kill(call.server, `SIG${signal}`)) {
        shot.notApplicable('the server has no process now')
        return next(call)
      }
      if (restartAfter !== undefined) outage.until = now + restartAfter
      shot.note({ effect: 'killed', signal: `SIG${signal}` })
      return next(call)
    },
} satisfies FaultType<z.output<typeof schema>>

/** Faults of a server's process. */
export const processFaults = { 'proc.kill': kill }
