import type { Millis, Clock } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { isDeepStrictEqual } from 'node:util'
import type { ProbeTool } from '../../config/schema/health-schema.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { printable, printableWords } from '../../telemetry/printable.ts'
import type { Conceal } from '../../upstreams/server-words.ts'

/** Why a server is not well, as incidents, metrics and operators name it. */
export const failureReasons = [
  'dns',
  'connection_refused',
  'timeout',
  'tls',
  'protocol',
  'auth',
  'slow',
  'wrong_answer',
  'process_exit',
  'rate_limited',
] as const

export type FailureReason = (typeof failureReasons)[number]

/** The steps of a probe: the session is opened if need be, then a ping or the lists, then the tool if there is one. */
export const probeSteps = ['open', 'ping', 'list', 'tool'] as const
export type ProbeStep = (typeof probeSteps)[number]

export interface ProbeFailure {
  readonly reason: FailureReason
  /** For people; holds no secret. */
  readonly message: string
  /** Whether it takes no second one to be sure, as when a process has ended. */
  readonly isCertain?: boolean
}

/** One look at a server. */
export interface Probe {
  /** When it began, in milliseconds since the Unix epoch. */
  readonly beganAt: Millis
  /** The same on the monotonic clock: that of the wall may be set meanwhile. */
  readonly beganNow: Millis
  /** How long its steps took that ended well. */
  readonly took: Readonly<Partial<Record<ProbeStep, Millis>>>
  /** The failure of the probe; undefined when nothing failed. */
  readonly failure: ProbeFailure | undefined
}

/** The one place that decides what an error of the gateway says of its server. */
export function failureReasonOf({ reason, cause }: GatewayError): FailureReason {
  if (cause !== undefined) return cause
  switch (reason) {
    case 'attempt_timeout':
    case 'deadline_exceeded':
    case 'overloaded':
      return 'timeout'
    case 'upstream_unauthorized':
    case 'upstream_forbidden':
      return 'auth'
    case 'upstream_rate_limited':
      return 'rate_limited'
    // It is not there, or ends its connections.
    case 'upstream_unavailable':
    case 'upstream_disconnected':
      return 'connection_refused'
    case 'incorrect_result':
      return 'wrong_answer'
    default:
      return 'protocol'
  }
}

/** One round of discovery as a probe. */
export interface ProbeRound {
  /** Takes a step, and notes how long it takes if it ends well. */
  step<T>(step: ProbeStep, task: () => Promise<T>): Promise<T>
  /** Tells what came of it. */
  end(failure: ProbeFailure | undefined): void
}

/** Makes probes of what discovery does anyway. */
export class Probing {
  readonly #clock: Pick<Clock, 'now' | 'wall'>
  readonly #tell: (probe: Probe) => void

  constructor(clock: Pick<Clock, 'now' | 'wall'>, tell: (probe: Probe) => void) {
    this.#clock = clock
    this.#tell = tell
  }

  begin(): ProbeRound {
    const clock = this.#clock
    const began = { beganAt: clock.wall(), beganNow: clock.now() }
    const took: Partial<Record<ProbeStep, Millis>> = {}
    return {
      async step(step, task) {
        const from = clock.now()
        const result = await task()
        took[step] = clock.now() - from
        return result
      },
      end: (failure) => this.#tell({ ...began, took, failure }),
    }
  }

  /** The session of the gateway has ended by itself: when its process has, that is a finding, even if the next one comes up. */
  ended({ cause, message }: GatewayError): void {
    if (cause !== 'process_exit') return
    const failure = { reason: cause, message, isCertain: true }
    const began = { beganAt: this.#clock.wall(), beganNow: this.#clock.now() }
    this.#tell({ ...began, took: {}, failure })
  }
}

/** How much of an answer a message repeats, in characters. */
const EXCERPT = 100

type Message = Readonly<Record<string, unknown>>

/** Returns the fault in the answer to a probe's call; undefined when the answer is as expected. */
export function wrongIn(
  { error, result }: Message,
  { name, expect }: ProbeTool,
  conceal: Conceal,
): ProbeFailure | undefined {
  const wrong = (what: string): ProbeFailure => ({
    reason: 'wrong_answer',
    message: `tool ${printable(name, EXCERPT)} ${what}`,
  })
  if (isObject(error))
    return wrong(
      `answered with an error: ${printableWords(typeof error.message === 'string' ? conceal(error.message) : error.message, EXCERPT)}`,
    )
  if (!isObject(result)) return wrong('answered without a result')
  const text = textOf(result)
  if (result.isError === true) return wrong(`failed: ${printable(conceal(text), EXCERPT)}`)
  if (typeof expect === 'string' && !text.includes(expect))
    return wrong(`did not answer with "${printable(expect, EXCERPT)}"`)
  if (typeof expect !== 'object') return undefined
  const { structuredContent } = result
  const differing = isObject(structuredContent)
    ? Object.keys(expect).filter((key) => !holds(structuredContent[key], expect[key]))
    : Object.keys(expect)
  if (differing.length === 0) return undefined
  return wrong(
    `answered with other values of structuredContent than expected: ${printable(differing.join(', '), EXCERPT)}`,
  )
}

/** Whether a value has what is expected of it; a map may have more. */
function holds(value: unknown, expected: unknown): boolean {
  if (!isObject(expected)) return isDeepStrictEqual(value, expected)
  return isObject(value) && Object.keys(expected).every((key) => holds(value[key], expected[key]))
}

function textOf({ content }: Message): string {
  if (!Array.isArray(content)) return ''
  return content
    .map((block: unknown) => (isObject(block) && typeof block.text === 'string' ? block.text : ''))
    .join('\n')
}
