import type { SampleRule } from './context.ts'

/** The block `telemetry.traces` of the config. */
export interface TracesConfig {
  /**
   * Where spans are sent: an `http` or `https` URL, to which `/v1/traces` is added when it has no path of its own.
   * Undefined: off, unless the environment names an endpoint.
   */
  readonly endpoint?: string | undefined
  /** Share of the traces that begin here which are recorded whatever comes of them, in [0, 1]. */
  readonly sample: number
  /** Whether arguments and results are recorded, up to 4,096 characters each. */
  readonly payloads: boolean
}

export type Variables = Readonly<Record<string, string | undefined>>

export type Protocol = 'http/protobuf' | 'http/json' | 'grpc'

export interface TracingSettings {
  readonly protocol: Protocol
  /** Undefined: the exporter reads it from the environment itself. One that is no URL is for it to refuse. */
  readonly url: string | undefined
  readonly sample: SampleRule
  /** Most spans that wait to be sent or for the collector to take them. */
  readonly queue: number
  /** Variables that hold something unknown, and are passed over. */
  readonly ignored: readonly string[]
}

/** Spans that may wait: four times what OpenTelemetry allows, at about 2 KB each. */
const QUEUE = 8_192

/** Every protocol that an exporter is installed for. */
const protocols: readonly Protocol[] = ['http/protobuf', 'http/json', 'grpc']

/**
 * What the environment and the config say together; undefined when calls are not traced. Variables of the
 * OpenTelemetry specification come first, as in all programs that know them; an empty one is none.
 */
export function readSettings(env: Variables, config: TracesConfig): TracingSettings | undefined {
  const get = (name: string) => env[name]?.trim() || undefined
  const named = get('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') ?? get('OTEL_EXPORTER_OTLP_ENDPOINT')
  if (named === undefined && config.endpoint === undefined) return undefined
  if (get('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined
  const exporter = get('OTEL_TRACES_EXPORTER') ?? 'otlp'
  if (exporter === 'none') return undefined

  const own = 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'
  const protocolVariable = get(own) === undefined ? 'OTEL_EXPORTER_OTLP_PROTOCOL' : own
  const protocolName = get(protocolVariable)
  const protocol = protocols.find((known) => known === protocolName)
  const sampler = get('OTEL_TRACES_SAMPLER')
  const argument = get('OTEL_TRACES_SAMPLER_ARG')
  const sample = sampler === undefined ? undefined : readSampler(sampler, argument)
  const queue = Number(get('OTEL_BSP_MAX_QUEUE_SIZE') ?? QUEUE)
  const isQueue = Number.isInteger(queue) && queue > 0
  const ignored = [
    exporter !== 'otlp' && 'OTEL_TRACES_EXPORTER',
    protocolName !== undefined && protocol === undefined && protocolVariable,
    sampler !== undefined && sample === undefined && 'OTEL_TRACES_SAMPLER',
    sampler?.endsWith('traceidratio') === true && !isRate(argument) && 'OTEL_TRACES_SAMPLER_ARG',
    !isQueue && 'OTEL_BSP_MAX_QUEUE_SIZE',
  ]
  return {
    protocol: protocol ?? 'http/protobuf',
    url: named === undefined ? withPath(config.endpoint ?? '', protocol) : odd(named),
    sample: sample ?? { rate: config.sample, parentBased: true },
    queue: isQueue ? queue : QUEUE,
    ignored: ignored.filter((name) => name !== false),
  }
}

/** https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#general-sdk-configuration */
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

/** Whether it is a ratio in [0, 1], which it need not be there to be. */
function isRate(argument = '1'): boolean {
  const rate = Number(argument)
  return rate >= 0 && rate <= 1
}

/** Read by itself, the exporter would pass over what is no URL, and send all spans to its default. */
function odd(named: string): string | undefined {
  return URL.canParse(named) ? undefined : named
}

function withPath(endpoint: string, protocol: Protocol | undefined): string {
  const url = new URL(endpoint)
  if (protocol !== 'grpc' && url.pathname === '/') url.pathname = '/v1/traces'
  return url.href
}
