import type { Call, CallRecord, Outcome } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError, type Reason, reasons } from '../mesh/errors.ts'
import type { KeyedRandom } from '../mesh/keyed-random.ts'
import type { Effect } from '../mesh/policy.ts'
import { INTERNAL_ERROR, INVALID_PARAMS } from '../protocol/jsonrpc.ts'
import type { RecordedAttempt, RecordedCall } from '../telemetry/recording/format.ts'
import type { Json, ServerModel, ToolModel } from './servers.ts'

/**
 * Servers whose tools repeat their recorded behaviour. An attempt with a recorded counterpart takes as long and ends
 * the same. Any other attempt copies duration and outcome from one recorded attempt of the tool, drawn at random:
 *
 * - The draw uses attempts near in time, because servers have bad spells: the nearest 50 in the 30 seconds before and
 *   after. If fewer than 5 attempts began in these 60 seconds, it uses all attempts of the tool.
 * - A further try is an attempt that begins after an earlier attempt of the same call failed. Further tries draw only
 *   from further tries, and first tries only from first tries, if there are at least 20. The reason: a call that failed
 *   once fails more often. A hedge that begins while all earlier attempts are under way counts as a first try.
 * - If the gateway ended an attempt, by a timeout or because the caller had left, the true duration is at least the
 *   recorded time. It is then drawn from longer attempts (redistribution to the right, B. Efron, 1967). If there are no
 *   longer attempts, the connection breaks after another minute without an answer.
 */

/** Maximum number of attempts near in time for a draw. */
const NEAREST = 50

/** Longest distance in time, in milliseconds, and minimum number of attempts near in time. */
const WINDOW_MS: Millis = 30_000
const LEAST_NEAR = 5

/** Minimum number of further tries, or of first tries, for separate draws. */
const LEAST_OF_KIND = 20

/** Extra duration of an attempt with unknown end, in milliseconds. */
const UNKNOWN_MS: Millis = 60_000

interface Seen {
  /** Start, in milliseconds after the recording began. */
  readonly at: Millis
  readonly attempt: RecordedAttempt
  /** True if an earlier attempt of the same call had failed before this attempt began. */
  readonly isFurther: boolean
  /** True if the gateway ended the attempt. */
  readonly isCut: boolean
}

/** Returns the key of a call as its arguments. Equal calls have equal arguments, each call in its own object. */
export function argumentsOf({ key, invalid }: RecordedCall): Json {
  return invalid === true ? { key, invalid } : { key }
}

/** Calls recorded as `invalid` break this schema, so the policy for arguments finds these calls. */
const INPUT: Json = { type: 'object', properties: { key: {} }, additionalProperties: false }

export interface RecordedServersParts {
  readonly calls: readonly RecordedCall[]
  readonly callOf: (args: object) => RecordedCall | undefined
  readonly random: KeyedRandom
  /** Milliseconds since the recording began. */
  readonly now: () => Millis
}

export class RecordedServers {
  readonly models: Readonly<Record<string, ServerModel>>
  /** Attempts made; `drawn` counts attempts without a recorded counterpart. */
  attempts = 0
  drawn = 0
  readonly #parts: RecordedServersParts
  readonly #keys = new Map<RecordedCall, number>()
  readonly #ends = new WeakMap<Call, RecordedAttempt>()
  /** The attempts of each call that a server received. */
  readonly #tries = new WeakMap<CallRecord, Call[]>()

  constructor(parts: RecordedServersParts) {
    this.#parts = parts
    const servers = new Map<string, Map<string, { effect: Effect; seen: Seen[] }>>()
    const everything: Seen[] = []
    parts.calls.forEach((call, index) => {
      this.#keys.set(call, index)
      const tools = servers.get(call.server) ?? new Map<string, { effect: Effect; seen: Seen[] }>()
      servers.set(call.server, tools)
      const { seen } = tools.get(call.tool) ?? { seen: [] as Seen[] }
      tools.set(call.tool, { effect: call.effect, seen })
      const own = seenOf(call)
      for (const one of own) {
        seen.push(one)
        everything.push(one)
      }
    })
    const rest = new Pool(everything)
    this.models = Object.fromEntries(
      [...servers].map(([server, tools]) => [
        server,
        {
          tools: Object.fromEntries(
            [...tools].map(([tool, { effect, seen }]) => [
              tool,
              // A tool without attempts of its own draws from the attempts of all tools.
              this.#model(effect, seen.length > 0 ? new Pool(seen) : rest),
            ]),
          ),
        },
      ]),
    )
  }

  #model(effect: Effect, pool: Pool): ToolModel {
    return {
      effect,
      inputSchema: INPUT,
      answer: () => NOTHING,
      tookMs: (call) => {
        const end = this.#endOf(call, pool)
        this.#ends.set(call, end)
        return end.tookMs
      },
      ends: (call) => {
        const end = this.#ends.get(call)!
        this.#ends.delete(call)
        return outcomeOf(call, end)
      },
    }
  }

  /** Registers an attempt. Returns true if an earlier attempt of the call has failed, or was ended by the gateway. */
  #isFurther(call: Call): boolean {
    const before = this.#tries.get(call.record) ?? []
    this.#tries.set(call.record, [...before, call])
    return before.some((other) => other.signal.aborted || !this.#ends.has(other))
  }

  #endOf(call: Call, pool: Pool): RecordedAttempt {
    const { callOf, random, now } = this.#parts
    const { params } = call.message.value as { params: { arguments: object } }
    const recorded = callOf(params.arguments)
    if (recorded === undefined) throw new Error('a call that was not recorded')
    const key = `${this.#keys.get(recorded)}/${call.attempt}`
    const own = recorded.attempts.find(({ number }) => number === call.attempt)
    const isFurther = this.#isFurther(call)
    this.attempts++
    if (own !== undefined && wasMade(own)) {
      if (!isCut(own)) return own
      const near = { at: recorded.at + own.at, isFurther }
      return pool.draw(near, own.tookMs, (purpose) => random(key, purpose))
    }
    this.drawn++
    return pool.draw({ at: now(), isFurther }, ANY, (purpose) => random(key, purpose))
  }
}

function seenOf(call: RecordedCall): Seen[] {
  const made = call.attempts.filter(wasMade)
  return made.map((attempt) => ({
    at: call.at + attempt.at,
    attempt,
    isFurther: made.some(({ at, tookMs }) => at + tookMs <= attempt.at && at < attempt.at),
    isCut: isCut(attempt),
  }))
}

/** Returns true if the server of the call received the attempt. */
const wasMade = ({ outcome, server }: RecordedAttempt): boolean =>
  outcome !== 'rejected' && server === undefined

/** Returns true if the gateway ended the attempt, so the outcome at the server is unknown. */
const isCut = ({ outcome }: RecordedAttempt): boolean => outcome === 'timeout' || outcome === 'cancelled'

/** Attempts for draws, ordered by time and by duration. */
class Attempts {
  readonly #inOrder: readonly Seen[]
  readonly #byDuration: readonly Seen[]

  constructor(seen: readonly Seen[]) {
    this.#inOrder = seen.toSorted((one, other) => one.at - other.at)
    this.#byDuration = seen.toSorted((one, other) => one.attempt.tookMs - other.attempt.tookMs)
  }

  get count(): number {
    return this.#inOrder.length
  }

  /** Draws a longer attempt, near the time if possible. Does not scan the whole list. */
  draw(at: Millis, longerThan: Millis, draw: () => number): Seen | undefined {
    const near = nearest(this.#inOrder, at)
    const isEvery = near === this.#inOrder
    const isAny = longerThan === ANY
    const longer = isEvery || isAny ? near : near.filter(({ attempt }) => attempt.tookMs > longerThan)
    if (isAny || (!isEvery && longer.length > 0)) return longer[Math.floor(draw() * longer.length)]
    const from = firstFrom(this.#byDuration, ({ attempt }) => attempt.tookMs > longerThan)
    return this.#byDuration[from + Math.floor(draw() * (this.count - from))]
  }
}

/** A lower bound below every duration; 0 would exclude attempts that take 0 ms. */
const ANY: Millis = -1

class Pool {
  readonly #all: Attempts
  readonly #further: Attempts
  readonly #others: Attempts

  constructor(seen: readonly Seen[]) {
    this.#all = new Attempts(seen)
    this.#further = new Attempts(seen.filter(({ isFurther }) => isFurther))
    this.#others = new Attempts(seen.filter(({ isFurther }) => !isFurther))
  }

  /** Returns an attempt longer than `longerThan`, in milliseconds. */
  draw(
    { at, isFurther }: Pick<Seen, 'at' | 'isFurther'>,
    longerThan: Millis,
    draw: (purpose: string) => number,
  ): RecordedAttempt {
    const kind = isFurther ? this.#further : this.#others
    const from = kind.count >= LEAST_OF_KIND ? kind : this.#all
    let least = longerThan
    for (let round = 0; ; round++) {
      const drawn = () => draw(`attempt ${round}`)
      const chosen = from.draw(at, least, drawn) ?? this.#all.draw(at, least, drawn)
      if (chosen === undefined) return { ...UNKNOWN, tookMs: Math.max(0, least) + UNKNOWN_MS }
      if (!chosen.isCut) return chosen.attempt
      least = chosen.attempt.tookMs
    }
  }
}

/** Returns attempts near a time from a list in order, or the whole list when too few are near. */
function nearest(seen: readonly Seen[], at: Millis): readonly Seen[] {
  let above = firstFrom(seen, (one) => one.at >= at)
  let below = above - 1
  const distance = (index: number) => Math.abs((seen[index]?.at ?? Infinity) - at)
  while (above - below - 1 < NEAREST) {
    const next = Math.min(distance(below), distance(above))
    if (next > WINDOW_MS) break
    if (distance(below) === next) below--
    else above++
  }
  const near = seen.slice(below + 1, above)
  return near.length < LEAST_NEAR ? seen : near
}

/** Returns the first index where `holds` is true, in a list where `holds` stays true to the end. */
function firstFrom(seen: readonly Seen[], holds: (one: Seen) => boolean): number {
  let [low, high] = [0, seen.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (holds(seen[middle]!)) high = middle
    else low = middle + 1
  }
  return low
}

const UNKNOWN = {
  number: 0,
  at: 0,
  outcome: 'transport_error',
  reason: 'upstream_disconnected',
  requestBytes: 0,
} as const

const NOTHING: Json = {}
const NO_CONTENT = { content: [] }
const TOLD_ERROR = { content: [], isError: true }

/** Returns an outcome that policies judge in the same way as the recorded outcome. Its text is a placeholder. */
function outcomeOf(call: Call, attempt: RecordedAttempt): Outcome {
  const { outcome, verdict, reason = '', retryAfterMs, unsent, status, code } = attempt
  if (verdict === undefined || reason !== '') {
    const error = gatewayError(isReason(reason) ? reason : 'upstream_unavailable', 'as it was recorded', {
      sent: unsent !== true,
      retryAfterMs,
      status,
    })
    return { kind: 'failed', error, ...(verdict !== undefined && { verdict }) }
  }
  const usual = outcome === 'caller_error' ? INVALID_PARAMS : INTERNAL_ERROR
  const ended =
    verdict === 'rpc_error'
      ? { error: { code: code ?? usual, message: 'as it was recorded' } }
      : { result: verdict === 'tool_error' ? TOLD_ERROR : NO_CONTENT }
  const value = { jsonrpc: '2.0', id: call.id, ...ended }
  return {
    kind: 'answered',
    result: { status: status ?? 200, value, text: JSON.stringify(value) },
    verdict,
  }
}

const isReason = (reason: string): reason is Reason => Object.hasOwn(reasons, reason)
