import { LONGEST_TIMER_MS } from '../../mesh/clock.ts'
import type { SampleRule } from './context.ts'

export interface TracesConfig {
  /**
   * URL of the collector for spans, `http` or `https`; `/v1/traces` is added to a URL without a path. Undefined:
   * tracing is off, unless the environment names an endpoint.
   */
  readonly endpoint?: string | undefined
  /** Share of the traces begun here that are recorded with any outcome, in [0, 1]. */
  readonly sample: number
  /** True: arguments and results are recorded, up to 4,096 characters each. */
  readonly payloads: boolean
}

export type Variables = Readonly<Record<string, string | undefined>>

export type Protocol = 'http/protobuf' | 'http/json' | 'grpc'

export interface TracingSettings {
  readonly protocol: Protocol
  /** URL of the collector; undefined: the exporter reads the URL from the environment, and refuses an invalid URL. */
  readonly url: string | undefined
  readonly sample: SampleRule
  /** Most spans that wait to be sent or accepted by the collector. */
  readonly queue: number
  /** Names of variables that are ignored because their values are unknown. */
  readonly ignored: readonly string[]
}

/** Most waiting spans: four times OpenTelemetry's default; a span takes about 2 KB. */
const QUEUE = 8_192

/** The protocols for which an exporter is installed. */
const protocols: readonly Protocol[] = ['http/protobuf', 'http/json', 'grpc']

/**
 * Returns the settings from the environment and the config; undefined when tracing is off. Variables of the
 * OpenTelemetry specification take precedence over the config; an empty variable counts as unset.
 */
export function readSettings(env: Variables, config: TracesConfig): TracingSettings | undefined {
  const get = (name: string) => env[name]?.trim() || undefined
  const named = get('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') ?? get('OTEL_EXPORTER_OTLP_ENDPOINT')
  if (named === undefined && config.endpoint === undefined) return undefined
  if (get('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined
  const exporter = get('OTEL_TRACES_EXPORTER') ?? 'otlp'
  if (exporter === 'none') return undefined

  const { protocol, unknown } = readProtocol(env, 'TRACES')
  const sampler = get('OTEL_TRACES_SAMPLER')
  const argument = get('OTEL_TRACES_SAMPLER_ARG')
  const sample = sampler === undefined ? undefined : readSampler(sampler, argument)
  const queue = Number(get('OTEL_BSP_MAX_QUEUE_SIZE') ?? QUEUE)
  const isQueue = Number.isInteger(queue) && queue > 0
  const ignored = [
    exporter !== 'otlp' && 'OTEL_TRACES_EXPORTER',
    unknown,
    sampler !== undefined && sample === undefined && 'OTEL_TRACES_SAMPLER',
    sampler?.endsWith('traceidratio') === true && !isRate(argument) && 'OTEL_TRACES_SAMPLER_ARG',
    !isQueue && 'OTEL_BSP_MAX_QUEUE_SIZE',
  ]
  return {
    protocol,
    url: named === undefined ? withPath(config.endpoint ?? '', protocol, '/v1/traces') : odd(named),
    sample: sample ?? { rate: config.sample, parentBased: true },
    queue: isQueue ? queue : QUEUE,
    ignored: ignored.filter((name) => typeof name === 'string'),
  }
}

/** The keys of the config's block `telemetry.metrics` that concern OpenTelemetry. */
export interface MetricsConfig {
  /** True: the durations of OpenTelemetry's conventions are counted. */
  readonly semanticConventions: boolean
  /**
   * URL of the collector for metrics; see `TracesConfig`. Undefined: no export, unless the environment names an
   * endpoint.
   */
  readonly endpoint?: string | undefined
}

export interface MetricsSettings extends Pick<TracingSettings, 'protocol' | 'url' | 'ignored'> {
  /** Time between two exports, in milliseconds. */
  readonly intervalMs: number
}

/** OpenTelemetry's default interval between two exports. */
const INTERVAL_MS = 60_000

/**
 * Returns the settings for the export of metrics; undefined when no metrics are sent. An endpoint variable for all
 * signals is not enough, because it is mostly set for spans.
 */
export function readMetricsSettings(env: Variables, config: MetricsConfig): MetricsSettings | undefined {
  const get = (name: string) => env[name]?.trim() || undefined
  const exporter = get('OTEL_METRICS_EXPORTER')
  const own = get('OTEL_EXPORTER_OTLP_METRICS_ENDPOINT')
  const named = own ?? get('OTEL_EXPORTER_OTLP_ENDPOINT')
  const asked = own ?? config.endpoint ?? (exporter === 'otlp' ? named : undefined)
  if (asked === undefined || exporter === 'none') return undefined
  if (get('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined
  const { protocol, unknown } = readProtocol(env, 'METRICS')
  const interval = Number(get('OTEL_METRIC_EXPORT_INTERVAL') ?? INTERVAL_MS)
  const isInterval = interval >= 1 && interval <= LONGEST_TIMER_MS
  const preference = 'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE'
  const ignored = [
    exporter !== undefined && exporter !== 'otlp' && 'OTEL_METRICS_EXPORTER',
    unknown,
    !isInterval && 'OTEL_METRIC_EXPORT_INTERVAL',
    (get(preference)?.toLowerCase() ?? 'cumulative') !== 'cumulative' && preference,
  ]
  return {
    protocol,
    url: named === undefined ? withPath(config.endpoint ?? '', protocol, '/v1/metrics') : odd(named),
    intervalMs: isInterval ? interval : INTERVAL_MS,
    ignored: ignored.filter((name) => typeof name === 'string'),
  }
}

/**
 * Returns the names of all set variables that a signal's exporter reads, for an error message: one of the values may be
 * wrong.
 */
export function exporterVariables(env: Variables, signal: 'TRACES' | 'METRICS'): string[] {
  const other = signal === 'TRACES' ? 'METRICS' : 'TRACES'
  return Object.keys(env)
    .filter(
      (name) => /^OTEL_EXPORTER_OTLP_/.test(name) && !/_LOGS_/.test(name) && !name.includes(`_${other}_`),
    )
    .sort()
}

/** Returns the protocol of a signal. `unknown`: the variable that names an unknown protocol, if any. */
function readProtocol(env: Variables, signal: 'TRACES' | 'METRICS') {
  const own = `OTEL_EXPORTER_OTLP_${signal}_PROTOCOL`
  const variable = env[own]?.trim() ? own : 'OTEL_EXPORTER_OTLP_PROTOCOL'
  const name = env[variable]?.trim() || undefined
  const protocol = protocols.find((known) => known === name)
  const unknown = name !== undefined && protocol === undefined && variable
  return { protocol: protocol ?? ('http/protobuf' as const), unknown }
}

/**
 * Returns the rule of a sampler; undefined when unknown:
 * https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#general-sdk-configuration
 */
function readSampler(name: string, argument: string | undefined): SampleRule | undefined {
  const parentBased = name.startsWith('parentbased_')
  switch (parentBased ? name.slice('parentbased_'.length) : name) {
    case 'always_on':
      return { rate: 1, parentBased }
    case 'always_off':
      return { rate: 0, parentBased }
    case 'traceidratio':
      return { rate: isRate(argument) ? Number(argument ?? 1) : 1, parentBased }
    default:
      return undefined
  }
}

/** True when the argument is a ratio in [0, 1], or absent. */
function isRate(argument = '1'): boolean {
  const rate = Number(argument)
  return rate >= 0 && rate <= 1
}

/**
 * Returns an invalid URL, which is then passed to the exporter so that it fails; undefined for a valid URL. From the
 * environment, the exporter would ignore an invalid URL and send all spans to its default address.
 */
function odd(named: string): string | undefined {
  return URL.canParse(named) ? undefined : named
}

function withPath(endpoint: string, protocol: Protocol, path: string): string {
  const url = new URL(endpoint)
  if (protocol !== 'grpc' && url.pathname === '/') url.pathname = path
  return url.href
}
