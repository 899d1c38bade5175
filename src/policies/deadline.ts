import { z } from 'zod'
import type { Call, Deadline, Layer, Service, InboundHeaders } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { type Extension, TimeLimit } from '../mesh/time-limit.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { DEADLINE_KEY, metaOf } from '../protocol/meta.ts'

const schema = z
  .strictObject({
    total: duration({ min: 1 })
      .default(55_000)
      .describe(
        'How long a call may take from its arrival, retries and waits included; an agent may ask for less, not for more. `tasks/result` uses the deadline of the tool that made the task. The default is below the 60 s of clients of the MCP SDKs, so an agent learns the reason.',
      ),
    onProgress: z
      .enum(['ignore', 'extend'])
      .default('ignore')
      .describe(
        "The effect of progress, if the call's agent asked for progress. `ignore`: none. `extend`: progress restarts the call's whole `total`. A deadline set by the agent stays.",
      ),
    maxTotalTimeout: duration({ min: 1 })
      .default(600_000)
      .describe('The longest total time of a call that progress extends; never less than `total`.'),
    reserve: duration()
      .default(50)
      .describe(
        'Time reserved for the return path when the server is told its deadline; at most half of the deadline.',
      ),
    forward: z
      .enum(['asked', 'always', 'never'])
      .default('asked')
      .describe(
        'Whether the server is told its remaining time, in _meta. `asked`: if the agent set a deadline.',
      ),
  })
  .describe('Ends a call at its deadline, however many attempts the call has made.')

/** Returns how long a call may take at most, in milliseconds. */
export function longestOf({
  total,
  onProgress,
  maxTotalTimeout,
}: Pick<z.output<typeof schema>, 'total' | 'onProgress' | 'maxTotalTimeout'>): Millis {
  return onProgress === 'extend' ? Math.max(total, maxTotalTimeout) : total
}

/** A call's time limit from its arrival, in milliseconds, and the limit when progress extends it. */
interface Times {
  readonly ms: Millis
  readonly longestMs: Millis
}

/** Gives each call a deadline, and ends the call then; tells the upstream to cancel. */
export const deadline: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: it is the only limit over all attempts, waits and retries of a call. Shorten `total` to the time agents really wait. Lengthen it only for tools that are slow by design, or let their progress extend it. To limit a single attempt, use `attemptTimeout`.',
  followsTask: true,
  build({ total, onProgress, maxTotalTimeout, reserve, forward }, { clock }): Layer {
    const limit = new TimeLimit(clock, total)
    const longest = longestOf({ total, onProgress, maxTotalTimeout })
    const usual = { ms: total, longestMs: longest }

    /** Runs a call with `leftMs` of `ms` left; `told`: whether the server is told the remaining time. */
    function run(call: Call, next: Service, { ms, longestMs }: Times, leftMs: Millis, told: boolean) {
      const { record } = call
      const reserveMs = told ? Math.min(reserve, ms / 2) : undefined
      const fixed = { at: record.startedAt + ms, reserveMs, askedFor: ms < total }
      const deadline = longestMs > ms ? { ...fixed, latest: record.startedAt + longestMs } : fixed
      const tooLong = (extension?: Extension) => exceeded(ms, record.sent, extension, longestMs)
      return limit.run(call, next, leftMs, tooLong, { deadline }, leftMs + longestMs - ms)
    }

    /** Runs a fallback call: the new tool's deadline starts now and may only be earlier than the first call's. */
    function runFallbackCall(call: Call, next: Service, { at, latest = at, reserveMs }: Deadline) {
      const now = clock.now()
      if (at <= now + total) return next(call)
      const longestMs = Math.min(longest, latest - now)
      const fixed = { at: now + total, reserveMs, askedFor: false }
      const deadline = longestMs > total ? { ...fixed, latest: now + longestMs } : fixed
      const tooLong = (extension?: Extension) => exceeded(total, call.record.sent, extension, longestMs)
      return limit.run(call, next, total, tooLong, { deadline }, longestMs)
    }

    return (next) => (call) => {
      if (call.deadline !== undefined) return runFallbackCall(call, next, call.deadline)
      const asked = askedLimitMs(call)
      // Without an agent's deadline, the limit need not count from arrival, and all these calls can share a timer.
      if (asked === undefined) return run(call, next, usual, total, forward === 'always')
      const ms = Math.min(asked, total)
      const leftMs = call.record.startedAt + ms - clock.now()
      const longestMs = Math.max(ms, Math.min(asked, longest))
      if (leftMs > 0) return run(call, next, { ms, longestMs }, leftMs, forward !== 'never')
      return Promise.resolve({ kind: 'rejected', error: exceeded(ms, call.record.sent), by: 'deadline' })
    }
  },
}

function exceeded(ms: Millis, sent: boolean, extension?: Extension, longestMs: Millis = ms) {
  const words =
    extension === 'silence'
      ? `no answer, and no progress for ${formatDuration(ms)} (progress extends the deadline)`
      : `no answer within the deadline of ${formatDuration(extension === 'longest' ? longestMs : ms)}`
  return gatewayError('deadline_exceeded', words, { sent })
}

const MILLISECONDS = /^\d{1,15}(?:\.\d{1,9})?$/

/** A timeout of the gRPC wire protocol: at most eight digits and a unit. */
const GRPC_TIMEOUT = /^(\d{1,8})([HMSmun])$/

const GRPC_UNITS_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
}

/**
 * Returns how long the agent will wait, in milliseconds from the call's arrival: the smallest value in its headers and
 * in `_meta`. Ignores malformed and non-positive values; undefined without any.
 */
export function askedLimitMs({ inbound, message }: Pick<Call, 'inbound' | 'message'>): Millis | undefined {
  let ms = headerMs(inbound, 'x-breakwater-deadline-ms')
  ms = Math.min(ms, headerMs(inbound, 'x-envoy-expected-rq-timeout-ms'))
  ms = Math.min(ms, grpcTimeoutMs(inbound['grpc-timeout']))
  const said = metaOf(message.value, 'params', DEADLINE_KEY)
  if (typeof said === 'number' && said > 0) ms = Math.min(ms, said)
  return ms === Infinity ? undefined : ms
}

function headerMs(headers: InboundHeaders, name: string): Millis {
  const value = headers[name]
  if (typeof value !== 'string' || !MILLISECONDS.test(value)) return Infinity
  return positive(Number(value))
}

function grpcTimeoutMs(value: string | string[] | undefined): Millis {
  const parts = typeof value === 'string' ? GRPC_TIMEOUT.exec(value) : null
  if (parts === null) return Infinity
  return positive(Number(parts[1]) * (GRPC_UNITS_MS[parts[2] as string] as number))
}

function positive(ms: Millis): Millis {
  return ms > 0 ? ms : Infinity
}
