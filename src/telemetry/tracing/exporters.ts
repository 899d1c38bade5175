import type { tracing } from '@opentelemetry/sdk-node'
import type { TracingSettings } from './settings.ts'

/** The exporter for a protocol. All else that it needs to know it reads from the process's environment. */
export async function createExporter({ protocol, url }: TracingSettings): Promise<tracing.SpanExporter> {
  const options = url === undefined ? {} : { url }
  switch (protocol) {
    case 'http/protobuf': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
      return new OTLPTraceExporter(options)
    }
    case 'http/json': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http')
      return new OTLPTraceExporter(options)
    }
    case 'grpc': {
      const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-grpc')
      return new OTLPTraceExporter(options)
    }
  }
}
