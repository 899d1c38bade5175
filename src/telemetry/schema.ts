import { z } from 'zod'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'

/** The base URL of a collector. */
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
      .describe('Tools of one server that have series of their own; all others share the tool `_other`.'),
    maxAge: duration({ max: 60_000 })
      .default(1_000)
      .describe(
        'How long what was written is given out again: whoever scrapes harder gets the same. 0: never.',
      ),
    semanticConventions: z
      .boolean()
      .default(false)
      .describe(
        "Whether /metrics has the durations that OpenTelemetry's conventions for MCP name, `mcp.server.operation.duration` and three others: two histograms more for each tool. Fixed at boot.",
      ),
    endpoint: collector
      .optional()
      .describe(
        'Where these durations go, by OTLP: the base URL of a collector. `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` wins. With either /metrics has them, too. Fixed at boot.',
      ),
  })
  .prefault({})
  .describe('What Prometheus gets under /metrics.')

const intents = z
  .strictObject({
    idle: duration({ min: 1_000, max: 3_600_000 })
      .default(30_000)
      .describe("How long after its last call an agent's task is taken to be over."),
    max: z
      .int()
      .min(1)
      .max(1_000_000)
      .default(10_000)
      .describe(
        'Tasks that may be open at once; one more ends the one that was quiet for the longest time. As many that are over are remembered.',
      ),
    remember: duration({ max: 86_400_000 })
      .default(600_000)
      .describe('How long a task that is over is remembered, for reports of how it ended. 0: not at all.'),
  })
  .prefault({})
  .describe('Tasks of agents, by which calls are counted together.')

const accessLog = z
  .strictObject({
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(0)
      .describe(
        'Share of calls that are logged, from 0 to 1. Errors, faults and partial results always are; of rejected calls ten a second, by server and reason, of others fifty, by server and result.',
      ),
    slow: duration({ min: 1 }).optional().describe('Calls that take this long are logged too.'),
  })
  .prefault({})
  .describe('One line of the log for each call. Arguments and results are never in it.')

const traces = z
  .strictObject({
    endpoint: collector
      .optional()
      .describe(
        'Where spans go, by OTLP: the base URL of a collector. `OTEL_EXPORTER_OTLP_ENDPOINT` wins. Without either there are no spans.',
      ),
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(0.1)
      .describe(
        'Share of calls that are traced, from 0 to 1. Errors, faults and partial results always are.',
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
      .describe('JSON Lines file to write to, readable by its owner only. Without it nothing is recorded.'),
    maxSize: size()
      .default(64 * 1024 ** 2)
      .describe('Size past which a new file is begun.'),
    keep: z.int().min(1).max(100).default(4).describe('Older files that are kept, as FILE.1, FILE.2 …'),
    sample: z
      .number()
      .min(0)
      .max(1)
      .default(1)
      .describe(
        'Share of the tasks that are recorded, from 0 to 1: each with all of its calls, or not at all.',
      ),
  })
  .prefault({})
  .describe(
    'What became of tool calls and their attempts, for `breakwater sim` to play again under other policies. Arguments, replies and names of tasks and tenants are never in it.',
  )

/** The block `telemetry`. */
export const telemetry = z
  .strictObject({ metrics, intents, accessLog, traces, recording })
  .prefault({})
  .describe('What the gateway tells of the calls that go through it.')

export type Telemetry = z.output<typeof telemetry>
export type IntentSettings = Telemetry['intents']
export type AccessLogSettings = Telemetry['accessLog']
export type TraceSettings = Telemetry['traces']
export type RecordingSettings = Telemetry['recording']
