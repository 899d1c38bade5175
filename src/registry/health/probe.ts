import type { Millis, Clock } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { isDeepStrictEqual } from 'node:util'
import type { ProbeTool } from '../../config/schema/health-schema.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { printable, printableWords } from '../../telemetry/printable.ts'
import type { Conceal } from '../../upstreams/server-words.ts'

/** Why a server is not well, for incidents, metrics and operators. */
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

/** The steps of a probe: open a session if needed, ping or fetch lists, then call the tool if configured. */
export const probeSteps = ['open', 'ping', 'list', 'tool'] as const
export type ProbeStep = (typeof probeSteps)[number]

export interface ProbeFailure {
  readonly reason: FailureReason
  /** The failure in words, without secrets. */
  readonly message: string
  /** Whether a single such failure opens an incident, such as the end of a process. */
  readonly isCertain?: boolean
}

export interface Probe {
  /** Start, in milliseconds since the Unix epoch. */
  readonly beganAt: Millis
  /** Start on the monotonic clock, because the wall clock may be set. */
  readonly beganNow: Millis
  /** Durations of successful steps. */
  readonly took: Readonly<Partial<Record<ProbeStep, Millis>>>
  /** Undefined on success. */
  readonly failure: ProbeFailure | undefined
}

/** Maps a gateway error to the failure reason of its server. */
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
    // The server is unreachable, or closes its connections.
    case 'upstream_unavailable':
    case 'upstream_disconnected':
      return 'connection_refused'
    case 'incorrect_result':
      return 'wrong_answer'
    default:
      return 'protocol'
  }
}

/** A round of discovery as a probe. */
export interface ProbeRound {
  /** Runs a step, and records its duration on success. */
  step<T>(step: ProbeStep, task: () => Promise<T>): Promise<T>
  /** Reports the probe. */
  end(failure: ProbeFailure | undefined): void
}

/** Makes probes from rounds of discovery. */
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

  /** Reports the end of the session's process as a failed probe, even if the restart succeeds. Ignores other ends. */
  ended({ cause, message }: GatewayError): void {
    if (cause !== 'process_exit') return
    const failure = { reason: cause, message, isCertain: true }
    const began = { beganAt: this.#clock.wall(), beganNow: this.#clock.now() }
    this.#tell({ ...began, took: {}, failure })
  }
}

/** Most characters of an answer quoted in a message. */
const EXCERPT = 100

type Message = Readonly<Record<string, unknown>>

/** Returns the failure in the answer of the health-check tool; undefined when as expected. */
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

/** Whether a value equals the expected value; maps may have further members. */
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
