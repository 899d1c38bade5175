import { valueInWords } from '../claims/judge.ts'
import { subjects } from '../claims/subjects.ts'
import { metricIn } from '../experiments/guarded/claims.ts'
import { type Ended, Meter } from '../experiments/guarded/meter.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { glob } from '../mesh/match.ts'
import { formatDuration } from '../units/duration.ts'
import type { GameDayPlan } from './plan.ts'

/** The window of the limits, in milliseconds, and the calls that a judgement of the window needs. */
const OVER_MS: Millis = 10_000
const LEAST_CALLS = 10

/** After this time without a look, such as a pause, a limit counts as newly exceeded. */
const LAPSE_MS: Millis = 5_000

const ARM = 'neighbours'

type Limit = GameDayPlan['stop']['neighbours'][number]

interface OpenIncident {
  readonly id: string
  readonly server: string
  readonly reason: string
}

/** The conditions of `stop` of a GameDay. Servers outside of the scope are its neighbours. */
export class StopConditions {
  readonly #clock: Pick<Clock, 'now'>
  readonly #stop: GameDayPlan['stop']
  readonly #isInScope: (server: string) => boolean
  readonly #incidents: () => Iterable<OpenIncident>
  /** Incidents that were open before the GameDay. */
  readonly #known: ReadonlySet<string>
  readonly #meter: Meter
  readonly #brokenSince = new Map<Limit, Millis>()
  #lookedAt: Millis = -Infinity

  /** `incidents`: the open incidents of all servers. */
  constructor(
    { stop, scope }: Pick<GameDayPlan, 'stop' | 'scope'>,
    { clock, incidents }: { clock: Pick<Clock, 'now'>; incidents: () => Iterable<OpenIncident> },
  ) {
    this.#clock = clock
    this.#stop = stop
    this.#isInScope = isWithin(scope)
    this.#incidents = incidents
    this.#known = new Set([...incidents()].map(({ id }) => id))
    this.#meter = new Meter(clock, OVER_MS)
  }

  /** Counts an ended call. */
  add(server: string, ended: Ended): void {
    if (this.#stop.neighbours.length === 0 || this.#isInScope(server)) return
    this.#meter.end(
      this.#meter.begin(ARM, () => 0),
      ended,
    )
  }

  /** Returns why the GameDay must stop now; undefined when no condition is met. Call about once a second. */
  look(): string | undefined {
    const now = this.#clock.now()
    if (now - this.#lookedAt > LAPSE_MS) this.#brokenSince.clear()
    this.#lookedAt = now
    return this.#incidentOutside() ?? this.#limitExceeded(now)
  }

  #incidentOutside(): string | undefined {
    if (!this.#stop.incidents) return undefined
    for (const { id, server, reason } of this.#incidents())
      if (!this.#known.has(id) && !this.#isInScope(server))
        return `an incident of ${server}, outside of the scope, has begun: ${reason}`
    return undefined
  }

  #limitExceeded(now: Millis): string | undefined {
    const figures = this.#meter.over(ARM, OVER_MS)
    for (const limit of this.#stop.neighbours) {
      const value = figures.calls < LEAST_CALLS ? undefined : metricIn(limit.metric, figures)
      // Without enough calls, the last judgement stays.
      if (value === undefined) continue
      if (value <= limit.above) {
        this.#brokenSince.delete(limit)
        continue
      }
      const since = this.#brokenSince.get(limit) ?? now
      this.#brokenSince.set(limit, since)
      if (now - since < limit.for) continue
      const { unit } = subjects[limit.metric]
      const long = limit.for === 0 ? '' : ` for ${formatDuration(Math.round(now - since))}`
      return `${limit.metric} of the servers outside of the scope was ${valueInWords(unit, value)} over ${figures.calls} calls, above ${valueInWords(unit, limit.above)}${long}`
    }
    return undefined
  }
}

/** Returns a function that tells whether a server is in the scope. */
export function isWithin({ servers }: GameDayPlan['scope']): (server: string) => boolean {
  const globs = servers.map(glob)
  return (server) => globs.some((matches) => matches(server))
}
