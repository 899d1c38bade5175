import type { Call, CallRecord, Layer, Outcome } from '../mesh/call.ts'
import { attemptOutcomeOf, resultOfCall, verdictIn } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { type FaultFate, faultFates, injectedFaults } from '../mesh/injected.ts'
import type { Slot } from '../mesh/record.ts'
import type { AccessLog } from './access-log.ts'
import type { Intents } from './intents.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'
import type { IsListed, OneTool } from './metrics/tool-series.ts'
import { countedFacts, noteFaults, notePolicies } from './observe-policies.ts'
import { type Recorder, recording } from './recording/recorder.ts'
import { acceptedTask, type TaskCalls } from './task-calls.ts'
import type { Tracing } from './tracing.ts'
import { brokenOff } from './tracing/call-trace.ts'

/** The fates of faults. `live` and `corruptions` tell at low cost if `account` must be called. */
export interface FaultAccount {
  readonly live: boolean
  /** `any`: true when an answer may contain data that an earlier fault corrupted. */
  readonly corruptions: { readonly any: boolean }
  /** Returns the fate of each fault aimed at a call. Called once per call, at its very end. */
  account(call: Call, outcome: Outcome): readonly FaultFate[]
}

export interface ObserveParts {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly log: Log
  /** Returns true when a tool is in its server's catalog; only such a tool gets separate series. */
  readonly isListed: IsListed
  readonly faults: FaultAccount
  /** Links calls to the agents' tasks. */
  readonly intents: Pick<Intents, 'begin' | 'end'>
  /** `unit`: a call's unit in an experiment. `end` is called for ended tool calls that have an arm or a unit. */
  readonly experiments: {
    readonly unit: Slot<object | undefined>
    end(record: CallRecord, outcome: Outcome): void
  }
  /** Tool calls that continue as MCP tasks. */
  readonly taskCalls: Pick<TaskCalls, 'hold' | 'told'>
  /** The tracing; undefined when off. */
  readonly tracing: Pick<Tracing, 'begin' | 'end'> | undefined
  readonly accessLog: AccessLog
  readonly recorder: Pick<Recorder, 'open' | 'begin' | 'end'>
}

/**
 * Returns the outermost layer, which sees every outcome and turns an exception (a bug in Breakwater) into an outcome.
 * Adds the fates of faults to a call's record, then the trace. After that, spans, metrics and the access log read the
 * record, in this order. Does not call disabled parts.
 */
export function observe(parts: ObserveParts): Layer {
  const { clock, metrics, log, isListed, faults, intents, experiments, taskCalls } = parts
  const { tracing, accessLog, recorder } = parts
  const { inFlight, operations } = metrics
  const overhead = metrics.overhead.series({})
  const counted = countedFacts(metrics)

  function note(call: Call, outcome: Outcome): void {
    const { server, tool, record } = call
    record.isOver = true
    if (injectedFaults.of(record) !== undefined || faults.live || faults.corruptions.any) {
      const fates = faults.account(call, outcome)
      if (fates.length > 0) faultFates.note(record, fates)
    }
    tracing?.end(call, outcome)
    const result = resultOfCall(outcome, record)
    const now = clock.now()
    const tookMs = now - record.startedAt
    const overheadMs = Math.max(0, tookMs - upstreamMsOf(record, now) - record.waitedMs)
    inFlight.set(server, (inFlight.get(server) ?? 1) - 1)
    if (!isDelayedElsewhere(record)) overhead.observe(overheadMs / 1_000)
    noteFaults(metrics, record)
    const series = tool === undefined ? undefined : metrics.tools.of(server, tool, isListed)
    notePolicies(metrics, counted, call, outcome, series?.labels.tool)
    const { traceId } = record
    const wallMs = traceId === undefined ? 0 : clock.wall()
    if (operations !== undefined) {
      const lanes = series?.operations ?? operations.of(call)
      operations.served(lanes, call, outcome, tookMs / 1_000, wallMs)
    }
    if (series === undefined) {
      metrics.requests.inc({ server, result })
      taskCalls.told(call, outcome)
    } else {
      const task = acceptedTask(call, outcome)
      if (task === undefined) {
        countAccepted(series, record)
        count(series, record, outcome, now, wallMs)
      } else taskCalls.hold(call, task, outcome, laterCount(server, tool!, record))
    }
    accessLog(call, outcome, result, tookMs, overheadMs)
    if (recording.of(record) !== undefined) recorder.end(call, outcome, result, tookMs, overheadMs)
  }

  /** Counts a tool call in the metrics of its tool, its task and its arm. */
  function count(series: OneTool, record: CallRecord, outcome: Outcome, now: Millis, wallMs: Millis): void {
    const { arm, traceId, startedAt } = record
    const verdict = verdictIn(outcome) ?? ''
    series.countCall(resultOfCall(outcome, record), verdict, arm, (now - startedAt) / 1_000, traceId, wallMs)
    intents.end(record, outcome)
    if (arm !== '' || experiments.unit.of(record) !== undefined) experiments.end(record, outcome)
  }

  /**
   * Returns a function that counts a call that became an MCP task, for the end of the task. Keeps nothing else of the
   * call in memory.
   */
  function laterCount(server: string, tool: string, record: CallRecord): (end: Outcome) => void {
    return (end) => {
      const series = metrics.tools.of(server, tool, isListed)
      countAccepted(series, record, end)
      count(series, record, end, clock.now(), clock.wall())
    }
  }

  function defect(call: Call, cause: unknown): Outcome {
    log.error(
      { err: cause, server: call.server, method: call.method },
      'internal error while handling a call (a bug in Breakwater)',
    )
    return { kind: 'failed', error: gatewayError('internal', 'internal error', { sent: call.record.sent }) }
  }

  return (next) => (call) => {
    inFlight.set(call.server, (inFlight.get(call.server) ?? 0) + 1)
    if (call.tool !== undefined) {
      intents.begin(call)
      if (recorder.open !== undefined) recorder.begin(call)
    }
    tracing?.begin(call)
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

/**
 * Counts attempts that the server accepted as MCP tasks. The agent knows only the last of these tasks; `end`: the
 * outcome of this task, if the agent got it.
 */
function countAccepted(series: OneTool, record: CallRecord, end?: Outcome): void {
  for (; record.acceptedAttempts > 0; record.acceptedAttempts--) {
    const isKnown = end !== undefined && record.acceptedAttempts === 1
    const verdict = isKnown ? (verdictIn(end) ?? '') : 'unchecked'
    series.countAttempt(isKnown ? attemptOutcomeOf(end, record) : 'returned', verdict, record.arm)
  }
}

/**
 * True when the call waited for a time that is not in its record: for a joined call, or because of a client-side fault.
 */
function isDelayedElsewhere(record: CallRecord): boolean {
  return (
    record.hasWaitedElsewhere || injectedFaults.of(record)?.some(({ side }) => side === 'client') === true
  )
}

export interface ObserveAttemptParts {
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'tools' | 'operations'>
  readonly isListed: IsListed
  /** The tracing; undefined when off. */
  readonly tracing: Pick<Tracing, 'beginAttempt' | 'endAttempt'> | undefined
  readonly recorder: Pick<Recorder, 'attempt'>
}

/**
 * Returns a layer that counts every attempt at a server, tells tracing and the recorder, and adds the attempt's time to
 * the call's record.
 */
export function observeAttempt({ clock, metrics, isListed, tracing, recorder }: ObserveAttemptParts): Layer {
  const { operations } = metrics

  function over(outgoing: Call, outcome: Outcome): void {
    const { record } = outgoing
    tracing?.endAttempt(outgoing, outcome)
    if (--record.upstream === 0) record.upstreamMs += clock.now() - record.upstreamSince
  }

  function count(outgoing: Call, outcome: Outcome, startedAt: Millis): void {
    const { server, tool, record } = outgoing
    const series = tool === undefined ? undefined : metrics.tools.of(server, tool, isListed)
    if (operations !== undefined) {
      const lanes = series?.operations ?? operations.of(outgoing)
      operations.attempted(lanes, outgoing, outcome, (clock.now() - startedAt) / 1_000)
    }
    if (series === undefined) return
    if (!record.isOver && acceptedTask(outgoing, outcome) !== undefined) {
      record.acceptedAttempts++
      return
    }
    const verdict = verdictIn(outcome) ?? ''
    series.countAttempt(attemptOutcomeOf(outcome, record), verdict, record.arm)
  }

  return (next) => (call) => {
    const { tool, record } = call
    const startedAt = operations === undefined && record.upstream > 0 ? 0 : clock.now()
    if (record.upstream++ === 0) record.upstreamSince = startedAt
    const outgoing = tracing === undefined ? call : tracing.beginAttempt(call)
    const recorded = recording.of(record) === undefined ? undefined : recorder.attempt(call)
    const ended = (outcome: Outcome) => {
      over(outgoing, outcome)
      recorded?.(outcome)
      if (tool !== undefined || operations !== undefined) count(outgoing, outcome, startedAt)
      return outcome
    }
    // Ends the attempt without counting it: a bug in Breakwater says nothing about the tool.
    const broke = (cause: unknown): never => {
      over(outgoing, brokenOff)
      throw cause
    }
    try {
      return next(outgoing).then(ended, broke)
    } catch (cause) {
      return broke(cause)
    }
  }
}

/**
 * Returns the total time of a call's attempts until now, in milliseconds. Includes attempts in progress, such as a
 * losing hedge.
 */
export function upstreamMsOf(record: CallRecord, now: Millis): Millis {
  return record.upstreamMs + (record.upstream > 0 ? now - record.upstreamSince : 0)
}
