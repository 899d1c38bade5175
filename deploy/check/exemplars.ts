import type { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { until } from '../../test/support/until.ts'
import type { PrometheusApi } from './prometheus-api.ts'

/** How long spans may be under way, in milliseconds. */
const PATIENCE_MS = 5_000

/** The source of the followed exemplars, and their age in seconds. */
interface Traced {
  readonly server: string
  readonly tools: readonly string[]
  readonly seconds: number
}

/** Returns missing exemplars, and exemplars that lead to no trace of a call of their tool, as sentences. */
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
  /** Returns the called tool of each received trace. */
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
