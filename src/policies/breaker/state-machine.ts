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
  /** Undefined for all requests of the server that are no calls of a listed tool. */
  readonly tool: string | undefined
  /** The endpoint that it is for. */
  readonly endpoint: string
  /** Index of the replica that is there now. */
  readonly replica: number
}

/** A breaker as the admin API shows it. */
export interface BreakerSnapshot {
  readonly state: BreakerState
  /** Since when, in milliseconds of the Unix epoch. */
  readonly since: Millis
  /** The cause of the last change; undefined when there was no change. */
  readonly dimension: Dimension | undefined
  readonly why: string | undefined
  /** Whether it stays open until somebody closes or resets it. */
  readonly manual: boolean
  readonly availability: Counts
  readonly correctness: Counts
  /** Undefined when slow calls do not count. */
  readonly slow: Counts | undefined
  /** Failures in a row. */
  readonly consecutive: number
  /** How long it stays open this time, in milliseconds; undefined unless it is open and not held open. */
  readonly openForMs: Millis | undefined
  /** When the next call may try it, in milliseconds from now, 0 when it is due; undefined likewise. */
  readonly nextProbeInMs: Millis | undefined
  /** Counts the changes: what was admitted under another number does not count any more. */
  readonly generation: number
}

/** Why a breaker is open that an operator holds open. */
export const OPENED = 'opened by hand'

/** Longest wait that is proposed to whoever finds all probes taken, in milliseconds: probes mostly return soon. */
const LONGEST_PROBE_WAIT_MS = 1_000

/** `search/query`, or `search` for a server's other requests. */
function nameOf({ server, tool }: Pick<BreakerOwner, 'server' | 'tool'>): string {
  return tool === undefined ? server : `${server}/${tool}`
}

/** The answer of a breaker that is open; `waitMs` until the next probe is infinite when it is held open. */
export function refusedOpen(
  owner: Pick<BreakerOwner, 'server' | 'tool'>,
  why: string | undefined,
  waitMs: Millis,
): Outcome {
  const opened = `breaker open for ${nameOf(owner)} (${why})`
  if (waitMs === Infinity) return refused(`${opened}, until it is closed by hand`, undefined)
  return refused(`${opened}; next probe in ${waitDuration(waitMs)}`, waitMs)
}

/** The answer of a breaker that is being probed. */
export function refusedProbing(owner: BreakerOwner, trip: Trip | undefined, probeTimeout: Millis): Outcome {
  const waitMs = Math.min(probeTimeout, LONGEST_PROBE_WAIT_MS)
  return refused(`breaker half-open for ${nameOf(owner)} (${trip?.why}); all probes are under way`, waitMs)
}

function refused(message: string, retryAfterMs: Millis | undefined): Outcome {
  return { kind: 'rejected', error: gatewayError(breakerOpen, message, { retryAfterMs }), by: 'breaker' }
}

/**
 * The state of one breaker. opossum changes it; this says how long and why, counts the changes, and tells them.
 * At rest it has neither circuit nor timer, and nothing has to be let go of when it is dropped.
 */
export class Machine {
  readonly #config: BreakerConfig
  readonly #context: Pick<PolicyContext, 'clock' | 'random' | 'emit'>
  readonly #owner: BreakerOwner
  readonly #backoff: Backoff
  readonly #onClosed: () => void
  #circuit: Circuit | undefined
  /** The last state that opossum reported. */
  state: BreakerState = 'closed'
  /** Why it is so; undefined before the first trouble. */
  trip: Trip | undefined
  /** Whether it is held open. */
  manual = false
  /** When it came to be so, on the clock. */
  since: Millis
  /** How long it stays open, in milliseconds; infinite while it is held open. */
  openForMs: Millis = 0
  /** Counts the changes, so that what was admitted before one can be told. */
  generation = 0
  /** The slots of probes; undefined unless the breaker is half-open. */
  probes: HalfOpenProbes | undefined

  /** `onClosed`: told when it closes, or begins anew. */
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

  /** How long an open breaker lets nothing through, in milliseconds, 0 when a probe is due. */
  waitMs(now: Millis): Millis {
    return Math.max(0, Math.ceil(this.since + this.openForMs - now))
  }

  open(trip: Trip): void {
    this.trip = trip
    // One that is open already, and is to be held open, is no change for opossum.
    if (this.state === 'open') return this.#opened()
    this.#circuit ??= createCircuit('closed', this.#events())
    this.#circuit.open()
  }

  /** Opens it until it is closed by hand. */
  hold(): void {
    if (this.manual) return
    this.manual = true
    this.open({ dimension: 'manual', why: OPENED })
  }

  /** Closes it by hand. `anew`: earlier openings are forgotten too. */
  close(anew: boolean): void {
    if (anew) this.#backoff.reset()
    this.manual = false
    this.#close({ dimension: 'manual', why: anew ? 'reset by hand' : 'closed by hand' })
  }

  /** Closes it because what opened it is over, as `why` says. */
  recover(why: string): void {
    this.#close({ dimension: 'probe', why })
  }

  #close(trip: Trip): void {
    this.trip = trip
    if (this.#circuit !== undefined) return this.#circuit.close()
    this.generation++
    this.#onClosed()
  }

  /** Lets probes through. opossum would go half-open by a timer of its own only, so a new circuit begins there. */
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

/** The arms of an experiment draw alike, so the set is no part of it. */
const keyOf = ({ server, tool = '', endpoint }: BreakerOwner) => `${server}/${tool}/${endpoint}`

/** A call that tries a half-open breaker. */
export interface Probe {
  cancel: Cancel
  /** Whether it is no longer waited for. */
  over: boolean
}

interface ProbeParts {
  readonly clock: Clock
  /** How many may be under way at a time, and how many have to succeed. */
  readonly probes: number
  readonly probeTimeout: Millis
}

/** The half-open time of a breaker: as many probes as needed, and the decision that they come to. */
export class HalfOpenProbes {
  readonly #parts: ProbeParts
  readonly #decided: (failure: string | undefined) => void
  readonly #underWay = new Set<Probe>()
  #free: number
  #needed: number

  /** `decided`: called at most once; undefined when the probes have succeeded, else why not. */
  constructor(parts: ProbeParts, decided: (failure: string | undefined) => void) {
    this.#parts = parts
    this.#decided = decided
    this.#free = parts.probes
    this.#needed = parts.probes
  }

  /** Takes a slot for a call; undefined when there is none. */
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

  /** Gives back the slot of a probe that has shown nothing. */
  neutral(probe: Probe): void {
    if (this.#ended(probe)) this.#free++
  }

  /** Ends it without a decision. Probes that are under way do not count any more. */
  abandon(): void {
    this.#free = 0
    for (const probe of this.#underWay) this.#ended(probe)
  }

  /** False when it was over before. */
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
 * How long a breaker stays open: `open`, doubled with each opening in a row up to `maxOpen`, give or take
 * `jitter`. The jitter comes last, so that breakers that have reached the longest time do not fall into step.
 */
export class Backoff {
  readonly #config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>
  readonly #random: KeyedRandom
  /** Openings so far: each has a draw of its own. */
  #openings = 0
  /** Openings since the last recovery that lasted. */
  #inARow = 0

  constructor(config: Pick<BreakerConfig, 'open' | 'maxOpen' | 'jitter'>, random: KeyedRandom) {
    this.#config = config
    this.#random = random
  }

  /** How long to stay open this time, in milliseconds, at least 1. `owner`: whose breaker it is, for the draws. */
  next(owner: string): Millis {
    const { open, maxOpen, jitter } = this.#config
    // Past 2^31 every open time has met its maximum.
    const usualMs = Math.min(maxOpen, open * 2 ** Math.min(this.#inARow++, 31))
    const draw = this.#random(`${owner}/${this.#openings++}`, 'breaker')
    return Math.max(1, Math.round(usualMs * (1 + jitter * (2 * draw - 1))))
  }

  reset(): void {
    this.#inARow = 0
  }
}

/** Told of each change of state. */
interface CircuitEvents {
  opened(): void
  closed(): void
}

/** A state machine that is not at rest. */
interface Circuit {
  open(): void
  close(): void
  /** Fires what a half-open circuit waits for. Without a failure it closes, with one it opens again. */
  fire(): (failure: string | undefined) => void
}

/** The settings for which there is no type: the state to begin in. */
type Options = CircuitBreaker.Options<[Promise<void>]> & {
  readonly state: { readonly closed: boolean; readonly halfOpen: boolean }
}

const rotation = new EventEmitter().setMaxListeners(0)

/**
 * Statistics that all circuits share, since nobody reads them: our windows decide. A Status of its own would
 * cost every circuit 2.5 KB, and a listener that only `shutdown` takes away again.
 */
const status = CircuitBreaker.newStatus({
  rollingCountBuckets: 1,
  rollingPercentilesEnabled: false,
  enableSnapshots: false,
  rotateBucketController: rotation,
})

/**
 * opossum, which has the states and decides on a half-open one. Made at the first trouble and dropped at
 * recovery: a circuit takes 4 KB, and firing it for each call of a closed breaker, where it could only count
 * what our windows count, 1.8 µs. Holds no timer and nothing global, so that dropping it is enough.
 */
export function createCircuit(from: 'closed' | 'half_open', { opened, closed }: CircuitEvents): Circuit {
  // A fresh object each: opossum writes into it.
  const options: Options = {
    name: 'breaker',
    timeout: false,
    // It opens by itself when a half-open circuit fails, and at no other time.
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
  // Its reset timer hangs on this event: when to go half-open is decided on the mesh's clock.
  circuit.removeAllListeners('open')
  circuit.on('open', opened)
  circuit.on('close', closed)
  return {
    open: () => circuit.open(),
    close: () => circuit.close(),
    fire() {
      // The shared statistics keep a latency of each, until they rotate.
      rotation.emit('rotate')
      let decide: (failure: string | undefined) => void = () => undefined
      const decision = new Promise<void>((resolve, reject) => {
        decide = (failure) => {
          if (failure === undefined) return resolve()
          // opossum hears of a failure only after the caller has: until then it would be neither open nor probed.
          circuit.open()
          reject(new Error(failure))
        }
      })
      circuit.fire(decision).catch(() => undefined)
      return (failure) => decide(failure)
    },
  }
}
