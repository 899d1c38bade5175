import type { Call, CallResult, InjectedFault, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { verdictOf } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { resultText } from '../../protocol/jsonrpc.ts'
import type { Canaries } from '../accounting/canaries.ts'
import type { Corruptions } from '../accounting/corruptions.ts'
import { digest } from '../decide/canonical.ts'
import { ENDED, type RawReply, type Shot, type Side, type World } from '../fault.ts'
import type { DecisionEntry } from '../journal/entry.ts'
import type { Release } from '../kill/release.ts'
import type { ArmedFault } from './armed-fault.ts'

/** What all shots share. */
export interface ShotParts {
  readonly clock: Clock
  readonly world: World
  readonly corruptions: Corruptions<FiredShot>
  readonly canaries: Canaries
}

/** One firing of an armed fault. */
export class FiredShot implements Shot {
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly world: World
  readonly released: Release
  readonly armed: ArmedFault
  readonly entry: DecisionEntry
  readonly injected: InjectedFault
  /** Whether the call came as far as its layer. */
  reached = false
  readonly #parts: ShotParts
  readonly #key: string
  #holds = true
  #over = false

  /** `key`: what its draws depend on. */
  constructor(
    armed: ArmedFault,
    key: string,
    entry: DecisionEntry,
    injected: InjectedFault,
    parts: ShotParts,
  ) {
    this.fault = armed.fault.name
    this.side = armed.fault.side
    this.clock = parts.clock
    this.world = parts.world
    this.released = armed.released
    this.armed = armed
    this.entry = entry
    this.injected = injected
    this.#parts = parts
    this.#key = key
  }

  draw(purpose: string): number {
    return this.armed.dice(this.#key, `${this.fault}/${purpose}`)
  }

  pause(ms: Millis, { signal }: Call): Promise<Paused> {
    return pause(this.clock, ms, this.released, signal)
  }

  reply(call: Call, raw: RawReply): Outcome {
    const outcome = this.world.read(call, raw)
    if (outcome.kind === 'answered') {
      this.#parts.corruptions.mark(this, outcome.result)
      this.entry.after = digest(outcome.result.text)
    }
    if (this.side === 'upstream') return outcome
    return { ...outcome, wire: { status: raw.status, headers: raw.headers, body: raw.body } }
  }

  disconnect(_: Call, message: string): Outcome {
    const error = gatewayError('upstream_disconnected', message, { sent: true })
    return this.side === 'upstream'
      ? { kind: 'failed', error }
      : { kind: 'failed', error, wire: { end: 'reset' } }
  }

  change(outcome: Outcome, result: unknown): Outcome {
    if (outcome.kind !== 'answered') return outcome
    // Whatever is stopped by now has to stay without effect.
    if (this.released.aborted) {
      this.notApplicable(ENDED)
      return outcome
    }
    const changed = withResult(outcome.result, result)
    this.entry.before ??= digest(outcome.result.text)
    this.entry.after = digest(changed.text)
    this.#parts.corruptions.mark(this, changed, outcome.result)
    this.#parts.canaries.plant(this.entry, outcome.result.value.result, result)
    return { ...outcome, result: changed, verdict: verdictOf(changed.value) }
  }

  note(facts: Readonly<Record<string, unknown>>): void {
    this.entry.note = { ...this.entry.note, ...facts }
    this.injected.note = this.entry.note
  }

  notApplicable(why: string): void {
    this.note({ why })
    if (this.injected.status === 'not_applicable') return
    this.entry.status = 'not_applicable'
    this.injected.status = 'not_applicable'
    this.armed.tally.hits--
    this.armed.tally.notApplicable++
  }

  /** Gives its place to others. */
  leave(): void {
    if (this.#holds) this.armed.concurrent--
    this.#holds = false
  }

  /** Takes it back before anything was done. */
  withdraw(): void {
    this.leave()
    this.armed.tally.hits--
    this.entry.status = 'error'
    this.injected.status = 'not_applicable'
  }

  /** Closes its entry with what became of the attempt; false when that has been done before. */
  end(outcome: string | undefined): boolean {
    this.leave()
    if (this.#over) return false
    this.#over = true
    if (this.entry.status === 'pending') this.entry.status = 'applied'
    if (this.released.reason !== undefined) this.entry.released = this.released.reason
    if (outcome !== undefined) this.entry.outcome = outcome
    return true
  }

  memory<State extends object>(key: string, create: () => State): State {
    return this.armed.memory(key, create)
  }
}

/** How a pause ended. */
type Paused = 'over' | 'released' | 'aborted'

/** Longest time that a timer can hold. */
const LONGEST_MS = 2 ** 31 - 1

/** Waits until the time is over, or one of the two signals aborts; leaves neither timer nor listener behind. */
export function pause(clock: Clock, ms: Millis, released: Signal, aborted: Signal): Promise<Paused> {
  if (released.aborted) return Promise.resolve('released')
  if (aborted.aborted) return Promise.resolve('aborted')
  return new Promise((resolve) => {
    const end = (how: Paused) => {
      cancel()
      released.removeEventListener('abort', onRelease)
      aborted.removeEventListener('abort', onAbort)
      resolve(how)
    }
    const onRelease = () => end('released')
    const onAbort = () => end('aborted')
    const cancel = clock.after(Math.min(ms, LONGEST_MS), () => end('over'))
    released.addEventListener('abort', onRelease)
    aborted.addEventListener('abort', onAbort)
  })
}

/** A reply with another result. Of a response, all else stays as its author wrote it; an error becomes a response. */
function withResult({ text, value, status }: CallResult, result: unknown): CallResult {
  if ('result' in value) {
    return { text: replaceAt(text, ['result'], result), value: { ...value, result }, status }
  }
  const { id } = value
  return {
    text: resultText(id as string | number, JSON.stringify(result)),
    value: { jsonrpc: '2.0', id, result },
    status,
  }
}
