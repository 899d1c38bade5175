import type { Call, CallRecord, FaultFate, Layer, Outcome } from '../mesh/call.ts'
import { resultOfCall } from '../mesh/classify.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { AccessLog } from './access-log.ts'
import type { Intents } from './intents.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import type { IsListed } from './metrics/tool-series.ts'
import { upstreamMsOf } from './observe-attempt.ts'
import { countedFacts, noteFaults, notePolicies } from './observe-policies.ts'
import type { Recorder } from './recording/recorder.ts'
import type { Tracing } from './tracing.ts'

export interface ObserveParts {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly log: Log
  /** Whether a tool is in its server's catalog: only then does it get series of its own. */
  readonly isListed: IsListed
  /** Says what became of each fault that was aimed at a call. Asked once per call, at its very end. */
  readonly account: (call: Call, outcome: Outcome) => readonly FaultFate[]
  /** The tasks that calls belong to. */
  readonly intents: Pick<Intents, 'begin' | 'end'>
  /** Hears of tool calls that have ended. */
  readonly experiments: { end(call: Call, outcome: Outcome): void }
  readonly tracing: Pick<Tracing, 'begin' | 'end'>
  readonly accessLog: AccessLog
  readonly recorder: Pick<Recorder, 'begin' | 'end'>
}

/**
 * The outermost layer: sees every outcome, and turns a defect of ours into one. Spans, metrics and the access log are
 * told of a call in this order, from the same record: first what became of its faults is written there, then in which
 * trace it is found.
 */
export function observe(parts: ObserveParts): Layer {
  const { clock, metrics, log, isListed, account, intents, experiments, tracing, accessLog, recorder } = parts
  const { inFlight, operations } = metrics
  const overhead = metrics.overhead.series({})
  const counted = countedFacts(metrics)

  function note(call: Call, outcome: Outcome): void {
    const { server, tool, record } = call
    record.isOver = true
    const fates = account(call, outcome)
    if (fates.length > 0) record.fates = fates
    tracing.end(call, outcome)
    const result = resultOfCall(outcome, record)
    const now = clock.now()
    const tookMs = now - record.startedAt
    const overheadMs = Math.max(0, tookMs - upstreamMsOf(record, now) - record.waitedMs)
    inFlight.set(server, (inFlight.get(server) ?? 1) - 1)
    if (!isDelayedElsewhere(record)) overhead.observe(overheadMs / 1_000)
    noteFaults(metrics, record)
    const series = tool === undefined ? undefined : metrics.tools.of(server, tool, isListed)
    notePolicies(metrics, counted, call, outcome, series?.labels.tool)
    const { arm, traceId } = record
    const wallMs = traceId === undefined ? 0 : clock.wall()
    if (operations !== undefined) {
      const lanes = series?.operations ?? operations.of(call)
      operations.served(lanes, call, outcome, tookMs / 1_000, wallMs)
    }
    if (series === undefined) metrics.requests.inc({ server, result })
    else {
      const verdict = outcome.kind === 'answered' ? outcome.verdict : ''
      series.countCall(result, verdict, arm, tookMs / 1_000, traceId, wallMs)
      intents.end(call, outcome)
      experiments.end(call, outcome)
    }
    accessLog(call, outcome, result, tookMs, overheadMs)
    if (record.recording !== undefined) recorder.end(call, outcome, result, tookMs, overheadMs)
  }

  function defect(call: Call, cause: unknown): Outcome {
    log.error({ err: cause, server: call.server, method: call.method }, 'a call met a defect of the gateway')
    return { kind: 'failed', error: gatewayError('internal', 'internal error', { sent: call.record.sent }) }
  }

  return (next) => (call) => {
    inFlight.set(call.server, (inFlight.get(call.server) ?? 0) + 1)
    if (call.tool !== undefined) {
      intents.begin(call)
      recorder.begin(call)
    }
    tracing.begin(call)
    const ended = (outcome: Outcome) => {
      note(call, outcome)
      return outcome
    }
    const broke = (cause: unknown) => ended(defect(call, cause))
    try {
      return next(call).then(ended, broke)
    } catch (cause) {
      return Promise.resolve(broke(cause))
    }
  }
}

/** Whether it waited where nobody notes how long: for the call that it joined, or for a fault above all policies. */
function isDelayedElsewhere({ hasWaitedElsewhere, faults }: CallRecord): boolean {
  return hasWaitedElsewhere || faults?.some(({ side }) => side === 'client') === true
}
