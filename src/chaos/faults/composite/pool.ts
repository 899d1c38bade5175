import { z } from 'zod'
import { derive, type Call, type Outcome, type Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { endOf, givenUp } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({
  slots: z.int().min(1).max(10_000).default(1).describe('Calls a server that get through at a time.'),
  hold: duration({ min: 1 })
    .default(10_000)
    .describe('How long a call waits that finds no slot, unless one gets free earlier.'),
})

/** `pool.exhaust`: a pool of connections that is too small for what it has to carry. */
export const pool: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'Few calls get through at a time; the others wait for a slot.',
  methods: requests,
  layer:
    ({ slots, hold }, shot) =>
    (next) =>
    (call) =>
      pooled(
        call,
        next,
        shot,
        shot.memory(call.server, () => new Slots(slots)),
        hold,
      ),
}

async function pooled(call: Call, next: Service, shot: Shot, slots: Slots, holdMs: Millis): Promise<Outcome> {
  let has = slots.take()
  if (!has) {
    const since = shot.clock.now()
    const { end, leave } = endOf(call)
    const grant = () => {
      has = true
      end.abort(undefined)
    }
    slots.wait(grant)
    await shot.pause(holdMs, derive(call, { signal: end }))
    slots.forget(grant)
    leave()
    shot.note({ waitedMs: shot.clock.now() - since })
  }
  try {
    return call.signal.aborted ? givenUp(call) : await next(call)
  } finally {
    if (has) slots.give()
  }
}

class Slots {
  #free: number
  readonly #waiting = new Set<() => void>()

  constructor(slots: number) {
    this.#free = slots
  }

  take(): boolean {
    if (this.#free === 0) return false
    this.#free--
    return true
  }

  /** Calls `grant` when a slot has become the waiter's. */
  wait(grant: () => void): void {
    this.#waiting.add(grant)
  }

  forget(grant: () => void): void {
    this.#waiting.delete(grant)
  }

  /** To whoever has waited the longest. */
  give(): void {
    for (const grant of this.#waiting) {
      this.#waiting.delete(grant)
      return grant()
    }
    this.#free++
  }
}
