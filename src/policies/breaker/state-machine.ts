import { EventEmitter } from 'node:events'
import CircuitBreaker from 'opossum'
import type { CallRecord, Outcome } from '../../mesh/call.ts'
import { type Cancel, type Clock, LONGEST_TIMER_MS, type Millis } from '../../mesh/clock.ts'
import { gatewayError, type PolicyReason } from '../../mesh/errors.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import { askedMs } from '../../mesh/pause-deadline.ts'
import type { PolicyContext } from '../../mesh/policy.ts'
import { formatDuration, waitDuration } from '../../units/duration.ts'
import type { BreakerConfig, Counts, Dimension, Trip } from './health.ts'

export const breakerOpen = {
  name: 'breaker_open',
  code: 1503,
  retryable: true,
  about: 'The breaker of the tool is open: its server failed too often, or somebody holds it open.',
} as const satisfies PolicyReason

type BreakerState = 'closed' | 'open' | 'half_open'

/** The owner of a breaker: a tool of a server in a policy set, at one endpoint. */
export interface BreakerOwner {
  readonly set: string
  readonly server: string
  /** Undefined for all requests of the server except calls of listed tools. */
  readonly tool: string | undefined
  readonly endpoint: string
  /** Index of the endpoint's present replica. */
  readonly replica: number
}

/** A breaker as the admin API shows it. */
export interface BreakerSnapshot {
  readonly state: BreakerState
  /** When this state began, in milliseconds of the Unix epoch. */
  readonly since: Millis
  /** The cause of the last change; undefined without a change. */
  readonly dimension: Dimension | undefined
  readonly why: string | undefined
  /** Whether the breaker stays open until an operator closes or resets it. */
  readonly manual: boolean
  readonly availability: Counts
  readonly correctness: Counts
  readonly slow: Counts | undefined
  readonly consecutive: number
  /** How long the breaker stays open this time, in milliseconds; undefined unless open and not held open. */
  readonly openForMs: Millis | undefined
  /** When the next call may probe, in milliseconds from now, 0 when due. Undefined unless open and not held open. */
  readonly nextProbeInMs: Millis | undefined
  /** The number of state changes. A call that started under another number no longer counts. */
  readonly generation: number
}

/** The reason shown while an operator holds a breaker open. */
export const OPENED = 'opened by hand'

/** Longest proposed wait when all probes are under way, in milliseconds: most probes return soon. */
const LONGEST_PROBE_WAIT_MS = 1_000

/** Returns `search/query` for a tool, or `search` for a server's other requests. */
function nameOf({ server, tool }: Pick<BreakerOwner, 'server' | 'tool'>): string {
  return tool === undefined ? server : `${server}/${tool}`
}

/**
 * Returns the rejection by an open breaker. `waitMs`: the time until the next probe; infinite while held open by hand.
 */
export function refusedOpen(
  owner: Pick<BreakerOwner, 'server' | 'tool'>,
  why: string | undefined,
  waitMs: Millis,
): Outcome {
  const opened = `breaker open for ${nameOf(owner)} (${why})`
  if (waitMs === Infinity) return refused(`${opened}, until it is closed by hand`, undefined)
  return refused(`${opened}; next probe in ${waitDuration(waitMs)}`, waitMs)
}

export function refusedProbing(owner: BreakerOwner, trip: Trip | undefined, probeTimeout: Millis): Outcome {
  const waitMs = Math.min(probeTimeout, LONGEST_PROBE_WAIT_MS)
  return refused(`breaker half-open for ${nameOf(owner)} (${trip?.why}); all probes are under way`, waitMs)
}

function refused(message: string, retryAfterMs: Millis | undefined): Outcome {
  return { kind: 'rejected', error: gatewayError(breakerOpen, message, { retryAfterMs }), by: 'breaker' }
}

/**
 * The state of one breaker. opossum changes the state; this class adds duration and reason, counts the changes, and
 * emits events. While closed, the machine has neither a circuit nor a timer, so dropping it frees everything.
 */
export class Machine {
  readonly #config: BreakerConfig
  readonly #context: Pick<PolicyContext, 'clock' | 'random' | 'emit'>
  readonly #owner: BreakerOwner
  readonly #backoff: Backoff
  readonly #onClosed: () => void
  #circuit: Circuit | undefined
  /** The last state opossum reported. */
  state: BreakerState = 'closed'
  /** The reason for the state; undefined before the first change. */
  trip: Trip | undefined
  /** Whether an operator holds the breaker open. */
  manual = false
  /** When the state began, on the clock. */
  since: Millis
  /** How long the breaker stays open, in milliseconds; infinite while held open. */
  openForMs: Millis = 0
  /** The number of state changes, to recognise calls that started before a change. */
  generation = 0
  /** The slots of probes; undefined unless the breaker is half-open. */
  probes: HalfOpenProbes | undefined

  /** Calls `onClosed` when the breaker closes, or starts over. */
  constructor(
    config: BreakerConfig,
    context: Pick<PolicyContext, 'clock' | 'random' | 'emit'>,
    owner: BreakerOwner,
    onClosed: () => void,
  ) {
    this.#config = config
    this.#onClosed = onClosed
    this.#context = context
    this.#owner = owner
    this.#backoff = new Backoff(config, context.random)
    this.since = context.clock.now()
  }

  /** Returns the remaining open time, in milliseconds: 0 when a probe is due, Infinity while held open. */
  waitMs(now: Millis): Millis {
    return Math.max(0, Math.ceil(this.since + this.openForMs - now))
  }

  open(trip: Trip): void {
    this.trip = trip
    // opossum emits no event when an open circuit opens again.
    if (this.state === 'open') return this.#opened()
    this.#circuit ??= createCircuit('closed', this.#events())
    this.#circuit.open()
  }

  /** Opens the breaker until an operator closes it. */
  hold(): void {
    if (this.manual) return
    this.manual = true
    this.open({ dimension: 'manual', why: OPENED })
  }

  /** Closes the breaker by hand. `anew`: also forgets earlier openings. */
  close(anew: boolean): void {
    if (anew) this.#backoff.reset()
    this.manual = false
    this.#close({ dimension: 'manual', why: anew ? 'reset by hand' : 'closed by hand' })
  }

  /** Closes the breaker because the cause is over, as `why` says. */
  recover(why: string): void {
    this.#close({ dimension: 'probe', why })
  }

  #close(trip: Trip): void {
    this.trip = trip
    if (this.#circuit !== undefined) return this.#circuit.close()
    this.generation++
    this.#onClosed()
  }

  /** Lets probes through. opossum only goes half-open by its own timer, so a new circuit begins in that state. */
  halfOpen(): void {
    this.#circuit = createCircuit('half_open', this.#events())
    const decide = this.#circuit.fire()
    const { probes, probeTimeout } = this.#config
    this.probes = new HalfOpenProbes({ clock: this.#context.clock, probes, probeTimeout }, (failure) => {
      this.trip = { dimension: 'probe', why: failure ?? 'recovered' }
      decide(failure)
    })
    this.#enter('half_open', 'probe')
  }

  #events(): CircuitEvents {
    return { opened: () => this.#opened(), closed: () => this.#closed() }
  }

  #opened(): void {
    const lasted = this.#context.clock.now() - this.since >= this.#config.window
    if (this.state === 'closed' && lasted) this.#backoff.reset()
    this.openForMs = this.manual ? Infinity : this.#backoff.next(keyOf(this.#owner))
    this.#enter('open', this.trip?.dimension)
  }

  #closed(): void {
    this.#circuit = undefined
    this.#onClosed()
    this.#enter('closed', this.trip?.dimension)
  }

  #enter(state: BreakerState, dimension: Dimension | undefined): void {
    if (state !== 'half_open') {
      this.probes?.abandon()
      this.probes = undefined
    }
    this.state = state
    this.since = this.#context.clock.now()
    this.generation++
    const { set, server, tool, replica } = this.#owner
    const openForMs = state === 'open' && !this.manual ? this.openForMs : undefined
    this.#context.emit({
      type: 'breaker',
      set,
      server,
      tool,
      detail: { replica, state, dimension, why: this.trip?.why, openForMs },
    })
  }
}

/** The key omits the set, so that all arms of an experiment get the same random numbers. */
const keyOf = ({ server, tool = '', endpoint }: BreakerOwner) => `${server}/${tool}/${endpoint}`

export interface Probe {
  cancel: Cancel
  /** Whether the breaker has stopped waiting for the probe. */
  over: boolean
}

interface ProbeParts {
  readonly clock: Clock
  /** How many probes may be under way at a time, and how many have to succeed. */
  readonly probes: number
  readonly probeTimeout: Millis
}

/** Counts the probes of a half-open breaker, and decides by their results. */
export class HalfOpenProbes {
  readonly #parts: ProbeParts
  readonly #decided: (failure: string | undefined) => void
  readonly #underWay = new Set<Probe>()
  #free: number
  #needed: number

  /** Calls `decided` at most once: with undefined when the probes have succeeded, else with the reason. */
  constructor(parts: ProbeParts, decided: (failure: string | undefined) => void) {
    this.#parts = parts
    this.#decided = decided
    this.#free = parts.probes
    this.#needed = parts.probes
  }

  /** Takes a probe slot for a call and returns the probe; undefined when no slot is free. */
  begin(record: CallRecord): Probe | undefined {
    if (this.#free === 0) return undefined
    this.#free--
    const { clock, probeTimeout } = this.#parts
    const askedBefore = askedMs(record, clock.now())
    let granted = 0
    const expire = () => {
      const grace = askedMs(record, clock.now()) - askedBefore - granted
      granted += grace
      if (grace > 0) probe.cancel = clock.after(grace, expire)
      else this.failed(probe, `a probe has not come back within ${formatDuration(probeTimeout)}`)
    }
    const probe: Probe = { cancel: clock.after(probeTimeout, expire), over: false }
    this.#underWay.add(probe)
    return probe
  }

  passed(probe: Probe): void {
    if (this.#ended(probe) && --this.#needed === 0) this.#decide(undefined)
  }

  failed(probe: Probe, why: string): void {
    if (this.#ended(probe)) this.#decide(why)
  }

  /** Gives back the slot of an inconclusive probe. */
  neutral(probe: Probe): void {
    if (this.#ended(probe)) this.#free++
  }

  /** Ends the half-open time without a decision. Probes under way no longer count. */
  abandon(): void {
    this.#free = 0
    for (const probe of this.#underWay) this.#ended(probe)
  }

  /** Ends a probe. Returns false when the probe was over before. */
  #ended(probe: Probe): boolean {
    if (probe.over) return false
    probe.over = true
    probe.cancel()
    this.#underWay.delete(probe)
    return true
  }

  #decide(failure: string | undefined): void {
    this.abandon()
    this.#decided(failure)
  }
}

/**
 * How long a breaker stays open: `open`, doubled with each opening in a row up to `maxOpen`, varied by `jitter`. The
 * jitter is applied last, so that breakers at the longest time do not all probe at once.
 */
export class Backoff {
  readonly #config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>
  readonly #random: KeyedRandom
  /** The number of openings; each opening uses another random number. */
  #openings = 0
  /** Openings since the last lasting recovery. */
  #inARow = 0

  constructor(config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>, random: KeyedRandom) {
    this.#config = config
    this.#random = random
  }

  /** Returns how long to stay open this time, in milliseconds, at least 1. `owner` is the key of the random numbers. */
  next(owner: string): Millis {
    const { open, maxOpen, jitter } = this.#config
    // After 31 doublings every open time has reached `maxOpen`.
    const usualMs = Math.min(maxOpen, open * 2 ** Math.min(this.#inARow++, 31))
    const draw = this.#random(`${owner}/${this.#openings++}`, 'breaker')
    return Math.max(1, Math.round(usualMs * (1 + jitter * (2 * draw - 1))))
  }

  reset(): void {
    this.#inARow = 0
  }
}

interface CircuitEvents {
  opened(): void
  closed(): void
}

/** The circuit of a breaker that opens, is open, or is half-open. */
interface Circuit {
  open(): void
  close(): void
  /** Fires a half-open circuit. Calling the result closes the circuit, or with a failure opens it again. */
  fire(): (failure: string | undefined) => void
}

/** The options of opossum, plus the initial state, which opossum's types omit. */
type Options = CircuitBreaker.Options<[Promise<void>]> & {
  readonly state: { readonly closed: boolean; readonly halfOpen: boolean }
}

const rotation = new EventEmitter().setMaxListeners(0)

/**
 * Statistics that all circuits share and nobody reads. Own statistics would cost 2.5 KB each, and a listener until
 * `shutdown`.
 */
const status = CircuitBreaker.newStatus({
  rollingCountBuckets: 1,
  rollingPercentilesEnabled: false,
  enableSnapshots: false,
  rotateBucketController: rotation,
})

/**
 * Returns an opossum circuit in the state `from`. A breaker has a circuit only while it is not closed: a circuit takes
 * 4 KB, and 1.8 µs per call for counts that nobody needs. The circuit has no timer and nothing global, so dropping it
 * is enough.
 */
export function createCircuit(from: 'closed' | 'half_open', { opened, closed }: CircuitEvents): Circuit {
  // A new object each time: opossum writes into it.
  const options: Options = {
    name: 'breaker',
    timeout: false,
    // The circuit opens by itself only when a half-open circuit fails.
    errorThresholdPercentage: 100,
    volumeThreshold: Number.MAX_SAFE_INTEGER,
    resetTimeout: LONGEST_TIMER_MS,
    rollingPercentilesEnabled: false,
    enableSnapshots: false,
    rotateBucketController: rotation,
    status,
    state: { closed: from === 'closed', halfOpen: from === 'half_open' },
  }
  const circuit = new CircuitBreaker((decision: Promise<void>) => decision, options)
  // Removes opossum's own listener, which starts a reset timer: the mesh's clock decides when to go half-open.
  circuit.removeAllListeners('open')
  circuit.on('open', opened)
  circuit.on('close', closed)
  return {
    open: () => circuit.open(),
    close: () => circuit.close(),
    fire() {
      // The shared statistics keep each latency until they rotate.
      rotation.emit('rotate')
      let decide: (failure: string | undefined) => void = () => undefined
      const decision = new Promise<void>((resolve, reject) => {
        decide = (failure) => {
          if (failure === undefined) return resolve()
          // opossum handles the rejection only after the caller has its outcome. Until then the circuit would be
          // neither open nor probing.
          circuit.open()
          reject(new Error(failure))
        }
      })
      circuit.fire(decision).catch(() => undefined)
      return (failure) => decide(failure)
    },
  }
}
