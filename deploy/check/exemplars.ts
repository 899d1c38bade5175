import type { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { until } from '../../test/support/until.ts'
import type { PrometheusApi } from './prometheus-api.ts'

/** How long spans may be under way, in milliseconds. */
const PATIENCE_MS = 5_000

/** Whose exemplars are followed, and of how many seconds until now. */
interface Traced {
  readonly server: string
  readonly tools: readonly string[]
  readonly seconds: number
}

/** Exemplars of tools that are missing, or that do not lead to the trace of a call of their tool, in words. */
export async function astray(
  prometheus: Pick<PrometheusApi, 'exemplars'>,
  receiver: Pick<OtlpReceiver, 'of'>,
  { server, tools, seconds }: Traced,
): Promise<string[]> {
  const found = await Promise.all(
    tools.map(async (tool) => {
      const series = `breakwater_tool_call_duration_seconds_bucket{server="${server}",tool="${tool}"}`
      const exemplars = await prometheus.exemplars(series, seconds)
      return { tool, traces: exemplars.map(({ trace_id: trace = '' }) => trace) }
    }),
  )
  /** Of each trace that was received, the tool that its call went to. */
  const called = () =>
    new Map(receiver.of('server').map(({ traceId, attributes }) => [traceId, attributes['gen_ai.tool.name']]))
  const haveCome = () => {
    const received = called()
    return found.every(({ traces }) => traces.every((trace) => received.has(trace)))
  }
  await until('the traces have come', haveCome, PATIENCE_MS).catch(() => undefined)
  const received = called()
  return found.flatMap(({ tool, traces }) => {
    if (traces.length === 0) return `no call of ${tool} has left an exemplar`
    return traces
      .filter((trace) => received.get(trace) !== tool)
      .map(
        (trace) => `an exemplar of ${tool}, ${trace}, leads to ${String(received.get(trace) ?? 'no trace')}`,
      )
  })
}
