import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Attributes } from '@opentelemetry/api'
import { resources } from '@opentelemetry/sdk-node'
import { EndedSpan, readLimits, type SpanLimits } from '../../../src/telemetry/tracing/ended-span.ts'

function span(limits: SpanLimits, attributes: Attributes): EndedSpan {
  const parts = {
    name: 'tools/call look',
    kind: 1,
    context: { traceId: '0'.repeat(31) + '1', spanId: '0'.repeat(15) + '1', traceFlags: 1 },
    parent: undefined,
    startTime: [10, 900_000_000] as [number, number],
    endTime: [12, 100_000_000] as [number, number],
    status: { code: 0 },
    attributes,
  }
  return new EndedSpan(parts, {
    resource: resources.emptyResource(),
    instrumentationScope: { name: 'test' },
    limits,
  })
}

test('without variables a span has the limits of the specification', () => {
  assert.deepEqual(readLimits({}), { valueLength: Infinity, attributes: 128, events: 128 })
})

test("a limit for spans wins over one for everything, and what is no number doesn't count", () => {
  const env = {
    OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT: '100',
    OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT: '5',
    OTEL_ATTRIBUTE_COUNT_LIMIT: '7',
    OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: 'many',
    OTEL_SPAN_EVENT_COUNT_LIMIT: ' 2 ',
  }
  assert.deepEqual(readLimits(env), { valueLength: 5, attributes: 7, events: 2 })
})

test('attributes beyond the limits are cut or dropped, and counted', () => {
  const { attributes, droppedAttributesCount } = span(
    { valueLength: 3, attributes: 3, events: 1 },
    { a: 'abcdef', b: ['uvwxyz', 'x'], c: 123_456, d: 'gone', e: true },
  )
  assert.deepEqual(attributes, { a: 'abc', b: ['uvw', 'x'], c: 123_456 })
  assert.equal(droppedAttributesCount, 2)
})

test('the oldest of too many events are dropped, and counted', () => {
  const full = span({ valueLength: Infinity, attributes: 128, events: 2 }, {})
  for (const name of ['first', 'second', 'third']) full.addEvent(name, {}, [11, 0])
  assert.deepEqual(
    full.events.map(({ name }) => name),
    ['second', 'third'],
  )
  assert.equal(full.droppedEventsCount, 1)
})

test('the duration is the difference of its times', () => {
  assert.deepEqual(
    span({ valueLength: Infinity, attributes: 128, events: 128 }, {}).duration,
    [1, 200_000_000],
  )
})
