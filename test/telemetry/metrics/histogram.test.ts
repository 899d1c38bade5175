import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Histogram as PromHistogram, Registry } from 'prom-client'
import { Histogram } from '../../../src/telemetry/metrics/instruments.ts'

const buckets = [0.1, 0.5, 1]

function setUp() {
  const registry = new Registry()
  return {
    registry,
    spread: new Histogram({ name: 'x', help: 'x', labelNames: ['a'], buckets, registers: [registry] }),
  }
}

test('a histogram says the same as a histogram of prom-client about the same values', async () => {
  const { registry, spread } = setUp()
  const theirs = new Registry()
  const histogram = new PromHistogram({
    name: 'x',
    help: 'x',
    labelNames: ['a'],
    buckets,
    registers: [theirs],
  })
  const values = [0, 0.1, 0.100001, 0.5, 0.75, 1, 1.5, 300]
  for (const a of ['1', '2'])
    for (const value of values) {
      spread.series({ a }).observe(value)
      histogram.observe({ a }, value)
    }
  const samples = async (from: Registry) =>
    (await from.getMetricsAsJSON()).flatMap(({ values }) =>
      values.map(({ metricName, labels, value }: { metricName?: string; labels: object; value: number }) => [
        metricName,
        Object.entries(labels).toSorted(),
        value,
      ]),
    )
  assert.deepEqual(await samples(registry), await samples(theirs))
})

test('a bucket shows the latest trace, and one whose id is too long is counted without', () => {
  const { spread } = setUp()
  const series = spread.series({ a: '1' })
  series.observe(0.05, 'first', 1_000)
  series.observe(0.06, 'second', 2_500)
  series.observe(0.7, 'x'.repeat(121), 3_000)
  series.observe(0.8, 'y'.repeat(120), 3_000)
  series.observe(2, 'z'.repeat(10_240), 3_000)
  const exemplars = spread.lines().map(({ exemplar }) => exemplar)
  assert.deepEqual(exemplars[0], { labelSet: { trace_id: 'second' }, value: 0.06, timestamp: 2.5 })
  assert.equal(exemplars[2]?.labelSet.trace_id, 'y'.repeat(120))
  assert.deepEqual([exemplars[1], exemplars[3]], [undefined, undefined])
  assert.equal(spread.lines().at(-1)?.value, 5)
})
