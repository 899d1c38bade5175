import { z } from 'zod'
import type { Call, Outcome, Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({
  delay: duration({ min: 1 }).default(3_000).describe('How long a server takes to start.'),
  idle: duration({ min: 1 })
    .default(60_000)
    .describe('After so long without a call that is hit, it has to start again.'),
})

/** `cold_start`: a server that sleeps when nobody needs it. */
export const coldStart: FaultType<z.output<typeof schema>> = {
  schema,
  about:
    'The first call to each server is slow, and the first after a pause; those that come meanwhile wait too.',
  methods: requests,
  layer: (config, shot) => (next) => (call) => started(call, next, shot, config),
}

interface Warmth {
  warmAt: Millis
  usedAt: Millis
}

async function started(
  call: Call,
  next: Service,
  shot: Shot,
  { delay, idle }: z.output<typeof schema>,
): Promise<Outcome> {
  const now = shot.clock.now()
  const server = shot.memory<Warmth>(call.server, () => ({ warmAt: now + delay, usedAt: now }))
  if (now - Math.max(server.usedAt, server.warmAt) > idle) server.warmAt = now + delay
  server.usedAt = now
  const waitMs = server.warmAt - now
  if (waitMs > 0) {
    await shot.pause(waitMs, call)
    shot.note({ waitedMs: shot.clock.now() - now })
    if (call.signal.aborted) return givenUp(call)
  } else shot.notApplicable('the server is warm')
  const outcome = await next(call)
  server.usedAt = shot.clock.now()
  return outcome
}
