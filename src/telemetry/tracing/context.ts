import type { HrTime } from '@opentelemetry/api'
import { randomFillSync } from 'node:crypto'
import type { Call } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { type Parent, readParent } from '../../protocol/task.ts'

/** The agent's span that made a call. `_meta` is preferred, since a header may come from a proxy between. */
export function parentOf({ message, inbound }: Pick<Call, 'message' | 'inbound'>): Parent | undefined {
  const meta = paramsOf(message.value)._meta
  const own = isObject(meta) ? readParent(meta.traceparent, meta.tracestate) : undefined
  return own ?? readParent(inbound.traceparent, inbound.tracestate)
}

/**
 * The span of a proxy or HTTP client around a call whose `_meta` names another parent; undefined without such a span.
 */
export function ambientOf(
  { inbound }: Pick<Call, 'inbound'>,
  parent: Parent | undefined,
): Parent | undefined {
  const ambient = readParent(inbound.traceparent, inbound.tracestate)
  return ambient?.spanId === parent?.spanId ? undefined : ambient
}

/** Decides at the beginning of a call whether it is recorded whatever the outcome. */
export type Head = (traceId: string, parent: Parent | undefined) => boolean

export interface SampleRule {
  /** Share of the traces begun here, in [0, 1]. */
  readonly rate: number
  /** Whether the caller's decision holds, so that traces are whole. */
  readonly parentBased: boolean
}

/**
 * Head sampling. The choice of a trace follows from its id, by the same sum as OpenTelemetry's own `TraceIdRatioBased`
 * sampler for Node. So processes with the same rate choose the same traces.
 */
export function createHead({ rate, parentBased }: SampleRule): Head {
  const bound = Math.floor(rate * 0xffff_ffff)
  const chosen = (traceId: string) => rate >= 1 || foldedId(traceId) < bound
  if (!parentBased) return chosen
  return (traceId, parent) => (parent === undefined ? chosen(traceId) : parent.sampled)
}

/** The sum of an id's four quarters, without carry. Works by digit: cutting and parsing costs ten times as much. */
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

/** Fetches random bytes by the page: single fetches would cost more than all other work per call. */
const PAGE = 4_096

/** Digits of 8 bytes: an id has this many or twice as many. */
const UNIT = 16

/**
 * Random ids of spans and traces, in lower-case hexadecimal digits. Unlike the mesh's draws, ids need no repeatable
 * seed, but must not collide with other processes' ids. So they come from the system's random source.
 */
export class RandomIds {
  readonly #page = Buffer.allocUnsafe(PAGE)
  #digits = ''
  #at = 0

  /** 16 digits, not all of them 0. */
  span(): string {
    return this.#take(UNIT)
  }

  /** 32 digits, not all of them 0. */
  trace(): string {
    return this.#take(2 * UNIT)
  }

  #take(length: number): string {
    if (this.#at + length > this.#digits.length) this.#refill()
    return this.#digits.slice(this.#at, (this.#at += length))
  }

  #refill(): void {
    randomFillSync(this.#page)
    // The standards forbid an id of only zeros.
    for (let at = 0; at < PAGE; at += UNIT / 2) this.#page[at]! |= 1
    this.#digits = this.#page.toString('hex')
    this.#at = 0
  }
}

/** Most drift between the two clocks before the wall clock counts as changed, in milliseconds. */
const DRIFT_MS = 2

/**
 * Converts points on the monotonic clock into wall time. The wall clock ticks in whole milliseconds: the difference is
 * taken once and kept, so that spans keep their order within a millisecond.
 */
export class Epoch {
  readonly #clock: Clock
  #offset: Millis

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.wall() - clock.now()
  }

  /** Notices a changed wall clock. */
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
