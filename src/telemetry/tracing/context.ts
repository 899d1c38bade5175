import type { HrTime } from '@opentelemetry/api'
import { randomFillSync } from 'node:crypto'
import type { Call } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { type Parent, readParent } from '../../protocol/task.ts'

/**
 * Returns the agent's span that made a call. Prefers `_meta` to the header, because a proxy may have set the header.
 */
export function parentOf({ message, inbound }: Pick<Call, 'message' | 'inbound'>): Parent | undefined {
  const meta = paramsOf(message.value)._meta
  const own = isObject(meta) ? readParent(meta.traceparent, meta.tracestate) : undefined
  return own ?? readParent(inbound.traceparent, inbound.tracestate)
}

/**
 * Returns the span of a proxy or HTTP client, from the header, if `_meta` names another parent; undefined otherwise.
 */
export function ambientOf(
  { inbound }: Pick<Call, 'inbound'>,
  parent: Parent | undefined,
): Parent | undefined {
  const ambient = readParent(inbound.traceparent, inbound.tracestate)
  return ambient?.spanId === parent?.spanId ? undefined : ambient
}

/** Returns true at the beginning of a call if its trace is recorded with any outcome. */
export type Head = (traceId: string, parent: Parent | undefined) => boolean

export interface SampleRule {
  /** Share of the traces begun here, in [0, 1]. */
  readonly rate: number
  /** True: the caller's sampling decision applies, so that traces are complete. */
  readonly parentBased: boolean
}

/**
 * Returns the function for head sampling. The decision about a trace depends on its id, with the same sum as in
 * OpenTelemetry's sampler `TraceIdRatioBased` for Node. So processes with the same rate record the same traces.
 */
export function createHead({ rate, parentBased }: SampleRule): Head {
  const bound = Math.floor(rate * 0xffff_ffff)
  const chosen = (traceId: string) => rate >= 1 || foldedId(traceId) < bound
  if (!parentBased) return chosen
  return (traceId, parent) => (parent === undefined ? chosen(traceId) : parent.sampled)
}

/**
 * Returns the sum of an id's four quarters, without carry. Reads digit by digit: cutting and parsing the text takes ten
 * times as long.
 */
function foldedId(traceId: string): number {
  let folded = 0
  for (let at = 0; at < 32; at += 8) {
    let quarter = 0
    for (let digit = at; digit < at + 8; digit++) {
      const unit = traceId.charCodeAt(digit)
      quarter = (quarter << 4) | (unit < 0x3a ? unit - 0x30 : unit - 0x57)
    }
    folded ^= quarter
  }
  return folded >>> 0
}

/**
 * Number of random bytes fetched at once. Fetching bytes for each id would take more time than all other tracing work
 * of a call.
 */
const PAGE = 4_096

/** Number of hexadecimal digits of 8 bytes. A span id has this many digits, a trace id twice as many. */
const UNIT = 16

/**
 * Random ids of spans and traces, in lower-case hexadecimal digits. Ids must not collide with ids of other processes.
 * So they come from the operating system's random source, not from a seed like the draws of policies.
 */
export class RandomIds {
  readonly #page = Buffer.allocUnsafe(PAGE)
  #digits = ''
  #at = 0

  /** Returns a span id: 16 digits, not all 0. */
  span(): string {
    return this.#take(UNIT)
  }

  /** Returns a trace id: 32 digits, not all 0. */
  trace(): string {
    return this.#take(2 * UNIT)
  }

  #take(length: number): string {
    if (this.#at + length > this.#digits.length) this.#refill()
    return this.#digits.slice(this.#at, (this.#at += length))
  }

  #refill(): void {
    randomFillSync(this.#page)
    // Sets a bit in each half of an id, because the standards forbid an id of only zeros.
    for (let at = 0; at < PAGE; at += UNIT / 2) this.#page[at]! |= 1
    this.#digits = this.#page.toString('hex')
    this.#at = 0
  }
}

/** Largest difference between the two clocks, in milliseconds, that does not count as a changed wall clock. */
const DRIFT_MS = 2

/**
 * Converts times of the monotonic clock into wall time. Measures the difference of the clocks once, because the wall
 * clock has whole milliseconds only. So spans keep their order within a millisecond.
 */
export class Epoch {
  readonly #clock: Clock
  #offset: Millis

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.wall() - clock.now()
  }

  /** Measures the difference again if the wall clock has changed. */
  refresh(): void {
    const offset = this.#clock.wall() - this.#clock.now()
    if (Math.abs(offset - this.#offset) > DRIFT_MS) this.#offset = offset
  }

  at(ms: Millis): HrTime {
    const wall = this.#offset + ms
    const seconds = Math.floor(wall / 1_000)
    return [seconds, Math.floor((wall - seconds * 1_000) * 1e6)]
  }
}
