import { injectedFaults, faultFates } from '../mesh/injected.ts'
import { type Call, type CallRecord, type Outcome, requestIdOf } from '../mesh/call.ts'
import { isHit, type Result, verdictIn, wentWrong } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { facts } from '../policies/descriptions.ts'
import { LogThrottle } from './log-throttle.ts'
import type { Log } from './log.ts'
import type { AccessLogSettings } from './schema.ts'
import { sessionDigest } from './intents/intent.ts'
import { callTrace, keptSpanOf } from './tracing/call-trace.ts'

/** Logs a finished call, unless the call is not in the sample or a limit is reached. */
export type AccessLog = (
  call: Call,
  outcome: Outcome,
  result: Result,
  tookMs: Millis,
  overheadMs: Millis,
) => void

/**
 * Most logged calls per second, for each server and reason: of rejections, and of other calls outside the sample, such
 * as failures.
 */
const REJECTED_PER_SECOND = 10
const OTHERS_PER_SECOND = 50

/** Most pairs of server and reason with a separate count; all other pairs share a count. */
const MAX_THROTTLES = 1_000
const OTHERS = ''

/** Longest logged text from an agent, in characters. */
const LONGEST = 256

/**
 * Returns the access log, which logs one line with all facts per call, with the message "call". The line has the result
 * and the reason, as in the call's span, but no arguments and no text of replies. Failed, slow, partial and faulted
 * calls are logged in any case; a call that its agent cancelled did not fail. A share of 0.1 logs every tenth of the
 * other calls. A call without a reply is a warning. Rejections are limited to ten lines per second, server and reason,
 * because they may be many. Other calls logged for their result are limited to fifty lines per second, server and
 * result. `leftOut` is the number of calls not logged before this line.
 */
export function createAccessLog(
  { sample, slow = Infinity }: AccessLogSettings,
  { log, clock }: { readonly log: Log; readonly clock: Clock },
): AccessLog {
  let seen = 0
  let due = 0
  const throttles = new Map<string, LogThrottle>()

  function throttleFor(key: string, perSecond: number): LogThrottle {
    let throttle = throttles.get(key)
    if (throttle !== undefined) return throttle
    if (throttles.size >= MAX_THROTTLES && key !== OTHERS) return throttleFor(OTHERS, REJECTED_PER_SECOND)
    throttle = new LogThrottle(clock, perSecond)
    throttles.set(key, throttle)
    return throttle
  }

  /**
   * Returns the reason for logging a call; undefined when it is not logged. Runs before the line is made, because most
   * calls are not logged.
   */
  function whyOf(
    call: Call,
    outcome: Outcome,
    result: Result,
    tookMs: Millis,
  ): 'sample' | 'outcome' | undefined {
    // Multiplies instead of adding up the shares, because the error of a sum would grow with every call.
    const dueBefore = due
    due = Math.floor(++seen * sample)
    if (due > dueBefore) return 'sample'
    const isWrong = result === 'caller_error' || wentWrong(outcome, call.record)
    return tookMs >= slow || isWrong || isFaulted(call, outcome) ? 'outcome' : undefined
  }

  return (call, outcome, result, tookMs, overheadMs) => {
    const why = whyOf(call, outcome, result, tookMs)
    if (why === undefined) return
    const write = (leftOut: number) => {
      const line = lineOf(call, outcome, result, tookMs, overheadMs)
      const counted = leftOut === 0 ? line : { ...line, leftOut }
      if (outcome.kind === 'answered' || result === 'cancelled') log.info(counted, 'call')
      else log.warn(counted, 'call')
    }
    if (outcome.kind === 'rejected')
      throttleFor(`${call.server} ${outcome.error.reason}`, REJECTED_PER_SECOND).admit(write)
    else if (why === 'outcome') throttleFor(`${call.server} ${result}`, OTHERS_PER_SECOND).admit(write)
    else write(0)
  }
}

function isFaulted({ record }: Call, outcome: Outcome): boolean {
  if (outcome.kind === 'answered' && outcome.partial !== undefined) return true
  return faultFates.of(record) !== undefined || isHit(record)
}

function lineOf(call: Call, outcome: Outcome, result: Result, tookMs: Millis, overheadMs: Millis) {
  const { server, method, tool, tenant, record } = call
  const requestId = requestIdOf(call)
  const answered = outcome.kind === 'answered' ? outcome : undefined
  const error = outcome.kind === 'answered' ? undefined : outcome.error
  return {
    server,
    method: clipped(method),
    tool: tool === undefined ? undefined : clipped(tool),
    requestId: typeof requestId === 'string' ? clipped(requestId) : requestId,
    result,
    verdict: verdictIn(outcome),
    partial: answered?.partial?.source,
    reason: error?.reason,
    error: error?.message,
    sent: error?.sent,
    rejectedBy: outcome.kind === 'rejected' ? outcome.by : undefined,
    durationMs: rounded(tookMs),
    overheadMs: rounded(overheadMs),
    waitedMs: rounded(record.waitedMs),
    attempts: record.attempts,
    supersededRejections: record.supersededRejections,
    recoveries: record.recoveries || undefined,
    ...notedOn(record),
    replica: record.replica,
    faults: injectedFaults
      .of(record)
      ?.filter(({ status }) => status === 'applied')
      .map(({ name }) => name),
    fates: faultFates.of(record)?.map(({ fault, fate }) => `${fault.name} ${fate}`),
    tenant,
    arm: record.arm === '' ? undefined : record.arm,
    intent: intentTold(call),
    intentSource: record.intent?.source,
    traceId: record.traceId,
    spanId: callTrace.of(record) === undefined ? undefined : keptSpanOf(record)?.spanId,
  }
}

/** Returns the task's name for the log; a digest if the task is a session, as in spans. */
function intentTold({ record: { intent }, caller }: Call): string | undefined {
  return intent?.source === 'session' ? sessionDigest(caller, intent.id) : intent?.id
}

/** Returns the facts that policies noted on a call, by the log key of each fact. */
function notedOn(record: CallRecord): Record<string, unknown> {
  const noted: Record<string, unknown> = {}
  for (const { fact } of facts) {
    const value = fact.of(record)
    const { log, alwaysLogged } = fact.telemetry
    if (value !== fact.initial || alwaysLogged === true) noted[log] = value
  }
  return noted
}

const clipped = (text: string) => text.slice(0, LONGEST)

/** Returns milliseconds rounded to microseconds. */
const rounded = (ms: Millis) => Math.round(ms * 1_000) / 1_000
