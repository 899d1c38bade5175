import type { Call, Outcome } from '../../mesh/call.ts'
import { beginAttempt, beginTrace, type CallTrace, endAttempt, endTrace } from './call-trace.ts'
import { createHead, RandomIds } from './context.ts'
import type { Tracing, TracingParts } from './contract.ts'
import { whyKept } from './keep.ts'
import { startPipeline } from './pipeline.ts'
import type { TracingSettings } from './settings.ts'
import { SpanWriter } from './span-writer.ts'

/** How long the last spans are waited for, in milliseconds. */
const GOODBYE_MS = 3_000

/** Tracing that is on. Loads the SDK, which takes half a second: hence in a file of its own. */
export async function startTracing(settings: TracingSettings, parts: TracingParts): Promise<Tracing> {
  const { clock, log, config } = parts
  const pipeline = await startPipeline(settings, parts)
  const ids = new RandomIds()
  const writer = new SpanWriter({ ...parts, ...pipeline, ids, payloads: config.payloads })
  let told = false

  function over(call: Call, trace: CallTrace, outcome: Outcome): void {
    const kept = whyKept(trace, call.record, outcome)
    if (kept === undefined) return
    try {
      writer.write(call, trace, outcome, kept)
      call.record.traceId = trace.traceId
    } catch (error) {
      // A defect of tracing is no reason for a call to fail, nor for a line in the log for each.
      if (!told) log.error({ err: error }, 'tracing met a defect of the gateway; its spans are missing')
      told = true
    }
  }

  const attemptsParts = { clock, ids }
  const callsParts = { ids, head: createHead(settings.sample) }
  let closing: Promise<void> | undefined
  return {
    enabled: true,
    begin: (call) => beginTrace(callsParts, call),
    end: (call, outcome) => endTrace(call, outcome, over),
    beginAttempt: (call) => beginAttempt(attemptsParts, call),
    endAttempt: (call, outcome) => endAttempt(attemptsParts, call, outcome),
    close: () => (closing ??= pipeline.close(GOODBYE_MS)),
  }
}
