import type { FaultEnvironment, FaultType, Injection, RawReply, Side } from '../../src/chaos/fault.ts'
import type { Layer, Outcome } from '../../src/mesh/call.ts'
import { Cancellation, type Signal } from '../../src/mesh/cancel.ts'
import type { Clock, Millis } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { resultText } from '../../src/protocol/jsonrpc.ts'
import { ManualClock } from './manual-clock.ts'
import { answerOf, testEnvironment, type TestEnvironment } from './injection-environment.ts'

export { answering, answerOf } from './injection-environment.ts'

/** Draws by purpose; a number is the draw for every purpose. */
export type Draws = number | Readonly<Record<string, number>> | ((purpose: string) => number)

/** An injection that records the fault's effects. The same object may serve many firings, with shared memory. */
export interface TestInjection extends Injection {
  readonly clock: ManualClock
  readonly faultEnvironment: TestEnvironment
  /** Noted facts, in order. */
  readonly notes: Readonly<Record<string, unknown>>[]
  /** Reasons for inapplicability, in order. */
  readonly inapplicable: string[]
  /** Raw replies that replaced the server's replies. */
  readonly replies: RawReply[]
  /** Messages of broken connections. */
  readonly disconnects: string[]
  /** Returns true if `change` made this outcome. */
  isChanged(outcome: Outcome): boolean
  /** Disarms the fault, and releases held messages. */
  release(): void
}

export interface TestInjectionParts {
  /** 0.5 for all purposes unless said otherwise. */
  readonly draws?: Draws
  readonly side?: Side
  readonly faultEnvironment?: Partial<FaultEnvironment>
  readonly clock?: ManualClock
}

/** An injection of the fault `test-fault`. Default side: upstream. */
export function testInjection({
  draws = 0.5,
  side = 'upstream',
  faultEnvironment,
  clock,
}: TestInjectionParts = {}): TestInjection {
  const time = clock ?? new ManualClock()
  const scripted = testEnvironment(faultEnvironment)
  const released = new Cancellation()
  const memories = new Map<string, object>()
  const changed = new WeakSet<object>()
  const notes: TestInjection['notes'] = []
  const inapplicable: string[] = []
  const replies: RawReply[] = []
  const disconnects: string[] = []
  return {
    fault: 'test-fault',
    side,
    clock: time,
    faultEnvironment: scripted,
    released,
    notes,
    inapplicable,
    replies,
    disconnects,
    draw: (purpose) => drawOf(draws, purpose),
    pause: (ms, call) => pauseOn(time, ms, released, call.signal),
    reply(call, raw) {
      replies.push(raw)
      const outcome = scripted.read(call, raw)
      return side === 'upstream' ? outcome : { ...outcome, wire: raw }
    },
    disconnect(call, message) {
      disconnects.push(message)
      const error = gatewayError('upstream_disconnected', message, { sent: call.record.sent })
      return side === 'upstream'
        ? { kind: 'failed', error }
        : { kind: 'failed', error, wire: { end: 'reset' } }
    },
    change(outcome, result) {
      if (outcome.kind !== 'answered' || released.aborted) return outcome
      const id = outcome.result.value.id as string | number
      const answered = answerOf(resultText(id, JSON.stringify(result)), outcome.result.status)
      if (answered.kind === 'answered') changed.add(answered.result.value)
      return answered
    },
    note: (facts) => void notes.push(facts),
    notApplicable: (why) => void inapplicable.push(why),
    notReached: (why) => void inapplicable.push(why),
    delaying: (_, settled) => settled,
    delayed: () => undefined,
    keepsPlace: () => undefined,
    memory<State extends object>(key: string, create: () => State): State {
      const known = memories.get(key) ?? create()
      memories.set(key, known)
      return known as State
    },
    isChanged: (outcome) => outcome.kind === 'answered' && changed.has(outcome.result.value),
    release: () => released.abort('released'),
  }
}

/** The layer of a fault; its config is parsed like a plan's entry. */
export function faultLayer(fault: FaultType<unknown>, config: object, injection: Injection): Layer {
  return fault.layer(fault.schema.parse(config), injection)
}

function drawOf(draws: Draws, purpose: string): number {
  if (typeof draws === 'number') return draws
  return typeof draws === 'function' ? draws(purpose) : (draws[purpose] ?? 0.5)
}

function pauseOn(
  clock: Clock,
  ms: Millis,
  released: Signal,
  signal: Signal,
): Promise<'over' | 'released' | 'aborted'> {
  return new Promise((resolve) => {
    const onRelease = () => end('released')
    const onAbort = () => end('aborted')
    const end = (how: 'over' | 'released' | 'aborted') => {
      cancel()
      released.removeEventListener('abort', onRelease)
      signal.removeEventListener('abort', onAbort)
      resolve(how)
    }
    const cancel = clock.after(ms, () => end('over'))
    if (signal.aborted) return onAbort()
    if (released.aborted) return onRelease()
    released.addEventListener('abort', onRelease, { once: true })
    signal.addEventListener('abort', onAbort, { once: true })
  })
}
