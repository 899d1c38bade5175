import { z } from 'zod'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'

const collector = z
  .string()
  .regex(/^https?:\/\/[^\s/]/, 'expected an http:// or https:// URL')
  .refine((url) => URL.canParse(url), 'expected an http:// or https:// URL')

const metrics = z
  .strictObject({
    maxToolsPerServer: z
      .int()
      .min(1)
      .max(10_000)
      .default(500)
      .describe('Tools of a server with their own series; all others share the tool `_other`.'),
    maxAge: duration({ max: 60_000 })
      .default(1_000)
      .describe(
        'How long a response of /metrics is reused: more frequent scrapes get the same response. 0: never reused.',
      ),
    semanticConventions: z
      .boolean()
      .default(false)
      .describe(
        "Whether /metrics has the durations of OpenTelemetry's conventions for MCP, `mcp.server.operation.duration` and three others: two more histograms per tool. Fixed at boot.",
      ),
    endpoint: collector
      .optional()
      .describe(
        'Base URL of an OTLP collector for the durations of `semanticConventions`. `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` wins. With either, /metrics has these durations too. Fixed at boot.',
      ),
  })
  .prefault({})
  .describe('The metrics for Prometheus under /metrics.')

const intents = z
  .strictObject({
    idle: duration({ min: 1_000, max: 3_600_000 })
      .default(30_000)
      .describe("Time after its last call until an agent's task counts as finished."),
    max: z
      .int()
      .min(1)
      .max(1_000_000)
      .default(10_000)
      .describe(
        'Most open tasks; a further task ends the task idle for the longest time. The same number of finished tasks is remembered.',
      ),
    remember: duration({ max: 86_400_000 })
      .default(600_000)
      .describe('How long a finished task is remembered, for reports of its outcome. 0: not at all.'),
  })
  .prefault({})
  .describe('Tasks of agents: the calls of a task are counted together.')

const accessLog = z
  .strictObject({
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(0)
      .describe(
        'Share of calls to log, from 0 to 1. Errors, faults and partial results are always logged: at most ten rejected calls a second by server and reason, and fifty others by server and result.',
      ),
    slow: duration({ min: 1 }).optional().describe('Calls that take this long are logged too.'),
  })
  .prefault({})
  .describe('The access log: a line per call, never with arguments or results.')

const traces = z
  .strictObject({
    endpoint: collector
      .optional()
      .describe(
        'Base URL of an OTLP collector for spans. `OTEL_EXPORTER_OTLP_ENDPOINT` wins. Without either there are no spans.',
      ),
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(0.1)
      .describe(
        'Share of calls to trace, from 0 to 1. Errors, faults and partial results are always traced.',
      ),
    payloads: z
      .boolean()
      .default(false)
      .describe('Whether arguments and results of tool calls are attributes of their spans.'),
  })
  .prefault({})
  .describe('OpenTelemetry spans. Fixed at boot: a reload cannot change it.')

const recording = z
  .strictObject({
    file: z
      .string()
      .min(1)
      .optional()
      .describe('JSON Lines file to write, readable by its owner only. Default: no recording.'),
    maxSize: size()
      .default(64 * 1024 ** 2)
      .describe('File size at which a new file begins.'),
    keep: z.int().min(1).max(100).default(4).describe('Older files kept, as FILE.1, FILE.2 …'),
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(1)
      .describe(
        'Share of the tasks to record, from 0 to 1; a task is recorded with all of its calls or not at all.',
      ),
  })
  .prefault({})
  .describe(
    'A recording of tool calls and their attempts, for `breakwater sim` to replay under other policies, and for `breakwater judge` to judge agents. Never includes arguments, replies, or names of tasks and tenants.',
  )

export const telemetry = z
  .strictObject({ metrics, intents, accessLog, traces, recording })
  .prefault({})
  .describe('Metrics, logs, traces and recordings of calls.')

export type Telemetry = z.output<typeof telemetry>
export type IntentSettings = Telemetry['intents']
export type AccessLogSettings = Telemetry['accessLog']
export type TraceSettings = Telemetry['traces']
export type RecordingSettings = Telemetry['recording']
