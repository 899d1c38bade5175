import type { Call, CallRecord, Layer, Outcome } from '../mesh/call.ts'
import { resultOf } from '../mesh/classify.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'

export interface ObserveParts {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly log: Log
  /** Whether a tool is in its server's catalog: only then does it get series of its own. */
  readonly isListed: (server: string, tool: string) => boolean
  /** Says what became of each fault that was aimed at a call. */
  readonly account: (call: Call, outcome: Outcome) => readonly FaultFate[]
}

/** What became of a fault. */
export interface FaultFate {
  readonly name: string
  readonly type: string
  readonly fate: string
}

/** The outermost layer: sees every outcome, and turns a defect of ours into one. */
export function observe({ clock, metrics, log, isListed, account }: ObserveParts): Layer {
  const inFlight = metrics.inFlight

  function note(call: Call, outcome: Outcome): void {
    const { server, tool, record } = call
    const result = resultOf(outcome)
    inFlight.set(server, (inFlight.get(server) ?? 1) - 1)
    if (record.recoveries > 0) metrics.sessionRecoveries.inc({ server }, record.recoveries)
    notePolicies(metrics, call, outcome)
    noteFaults(metrics, record, account(call, outcome))
    if (tool === undefined) metrics.requests.inc({ server, result })
    else {
      const label = isListed(server, tool) ? tool : '_other'
      if (record.invalidArguments) metrics.invalidArguments.inc({ server, tool: label })
      metrics.toolCalls.inc({ server, tool: label, result })
      metrics.toolCallDuration.observe({ server, tool: label }, (clock.now() - record.startedAt) / 1000)
    }
    if (outcome.kind === 'answered' || result === 'cancelled') return
    const { reason, message, sent } = outcome.error
    log.warn({ server, method: call.method, tool, reason, sent, attempts: record.attempts }, message)
  }

  function defect(call: Call, cause: unknown): Outcome {
    log.error({ err: cause, server: call.server, method: call.method }, 'a call met a defect of the gateway')
    return { kind: 'failed', error: gatewayError('internal', 'internal error', { sent: call.record.sent }) }
  }

  return (next) => (call) => {
    inFlight.set(call.server, (inFlight.get(call.server) ?? 0) + 1)
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

/** What policies did to a call; most calls they do nothing to. */
function notePolicies(metrics: Metrics, { server, record }: Call, outcome: Outcome): void {
  if (outcome.kind === 'rejected') metrics.rejections.inc({ server, reason: outcome.error.reason })
  if (outcome.kind === 'answered' && outcome.partial !== undefined)
    metrics.partials.inc({ server, source: outcome.partial.source })
  if (record.retries > 0) metrics.retries.inc({ server, decision: 'sent' }, record.retries)
  if (record.hedges > 0) metrics.retries.inc({ server, decision: 'hedged' }, record.hedges)
  if (record.retryRefused !== undefined) metrics.retries.inc({ server, decision: record.retryRefused })
  if (record.replayed !== 'no') metrics.replays.inc({ server, how: record.replayed })
  if (record.infeasible) metrics.infeasible.inc({ server })
}

/** Faults of the runtime API have names without end: they share one. */
const faultLabel = (name: string) => (name.startsWith('runtime-') ? '_runtime' : name)

function noteFaults(metrics: Metrics, { faults }: CallRecord, fates: readonly FaultFate[]): void {
  for (const { name, type, status } of faults ?? [])
    if (status === 'applied') metrics.faultsInjected.inc({ fault: faultLabel(name), type })
  for (const { name, fate } of fates) metrics.faultOutcomes.inc({ fault: faultLabel(name), handled: fate })
}
