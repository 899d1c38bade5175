import type { Millis } from '../../mesh/clock.ts'
import type { Kit } from '../../mesh/policy.ts'
import { Backoff } from './backoff.ts'
import { createCircuit, type Circuit, type CircuitEvents } from './circuit.ts'
import type { BreakerOwner, BreakerState } from './facts.ts'
import type { BreakerConfig } from './schema.ts'
import type { Dimension, Trip } from './tally.ts'
import { Trial } from './trial.ts'

/**
 * The state of one breaker. opossum changes it; this says how long and why, counts the changes, and tells them.
 * At rest it has neither circuit nor timer, and nothing has to be let go of when it is dropped.
 */
export class Machine {
  readonly #config: BreakerConfig
  readonly #kit: Pick<Kit, 'clock' | 'dice' | 'emit'>
  readonly #owner: BreakerOwner
  readonly #backoff: Backoff
  readonly #onClosed: () => void
  #circuit: Circuit | undefined
  /** What opossum said last. */
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
  /** What a call may take a probe's slot of; only while half-open. */
  trial: Trial | undefined

  /** `onClosed`: told when it closes, or begins anew. */
  constructor(
    config: BreakerConfig,
    kit: Pick<Kit, 'clock' | 'dice' | 'emit'>,
    owner: BreakerOwner,
    onClosed: () => void,
  ) {
    this.#config = config
    this.#onClosed = onClosed
    this.#kit = kit
    this.#owner = owner
    this.#backoff = new Backoff(config, kit.dice)
    this.since = kit.clock.now()
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
    this.open({ dimension: 'manual', why: 'opened by hand' })
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
    this.trial = new Trial({ clock: this.#kit.clock, probes, probeTimeout }, (failure) => {
      this.trip = { dimension: 'probe', why: failure ?? 'recovered' }
      decide(failure)
    })
    this.#enter('half_open', 'probe')
  }

  #events(): CircuitEvents {
    return { opened: () => this.#opened(), closed: () => this.#closed() }
  }

  #opened(): void {
    const lasted = this.#kit.clock.now() - this.since >= this.#config.window
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
      this.trial?.abandon()
      this.trial = undefined
    }
    this.state = state
    this.since = this.#kit.clock.now()
    this.generation++
    const { set, server, tool, replica } = this.#owner
    const openForMs = state === 'open' && !this.manual ? this.openForMs : undefined
    this.#kit.emit({
      type: 'breaker',
      server,
      tool,
      detail: { set, replica, state, dimension, why: this.trip?.why, openForMs },
    })
  }
}

/** The arms of an experiment draw alike, so the set is no part of it. */
const keyOf = ({ server, tool = '', endpoint }: BreakerOwner) => `${server}/${tool}/${endpoint}`
