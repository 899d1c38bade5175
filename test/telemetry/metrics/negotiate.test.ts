import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatFor } from '../../../src/telemetry/metrics/exposition.ts'

test('a Prometheus that takes OpenMetrics gets it', () => {
  for (const accept of [
    'application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
    'application/openmetrics-text; version=1.0.0; charset=utf-8',
    'application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.6, Application/OpenMetrics-Text;q=0.5, */*;q=0.1',
  ])
    assert.equal(formatFor(accept), 'openmetrics', accept)
})

test('a scraper that does not ask for OpenMetrics, or prefers text, gets text', () => {
  for (const accept of [
    undefined,
    '',
    '*/*',
    'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8',
    'text/plain;version=0.0.4;q=0.6,application/openmetrics-text;q=0.5',
    'application/openmetrics-text;q=0',
    'application/openmetrics-text;q=odd',
    `${'x,'.repeat(1_000)}application/openmetrics-text`,
  ])
    assert.equal(formatFor(accept), 'text', accept)
})
