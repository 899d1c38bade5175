import assert from 'node:assert/strict'
import { test } from 'node:test'
import { table, createMetrics, type Metrics } from '../../../src/telemetry/metrics.ts'
import { Counter, Histogram } from '../../../src/telemetry/metrics/instruments.ts'

/** Counts once, in every metric with the label `arm`. */
function countAll(metrics: Metrics, arm: string): void {
  for (const series of Object.values(metrics) as unknown[])
    if ((series instanceof Counter || series instanceof Histogram) && series.has('arm')) {
      const one = (series as Counter<string> | Histogram<string>).series({ arm })
      if ('observe' in one) one.observe(1)
      else one.value++
    }
  for (const isListed of [() => true, () => false]) {
    const tool = metrics.tools.of('s', 't', isListed)
    tool.countCall('returned', 'correct', arm, 1)
    tool.countAttempt('returned', 'correct', arm)
  }
}

/** Returns the lines of an arm, or of calls without an arm. */
async function linesOf({ registry }: Metrics, arm: string): Promise<string[]> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line.startsWith('breakwater_'))
  return lines.filter((line) => (/arm="([^"]*)"/.exec(line)?.[1] ?? '') === arm)
}

test('an arm outside the config leaves no series after the next scrape, and other arms keep all series', async () => {
  const metrics = createMetrics()
  metrics.arms.follow(['ab/a', 'ab/b', 'cd/a'])
  for (const arm of ['', 'ab/a', 'ab/b', 'cd/a']) countAll(metrics, arm)
  const [plain, stays] = [await linesOf(metrics, ''), await linesOf(metrics, 'cd/a')]
  const counted = table.filter(({ labels, type }) => labels.includes('arm') && type !== 'gauge')
  assert.ok(stays.length > counted.length)
  metrics.arms.follow(['cd/a'])
  assert.equal((await linesOf(metrics, 'ab/a')).length, stays.length)
  metrics.arms.told()
  assert.deepEqual([...(await linesOf(metrics, 'ab/a')), ...(await linesOf(metrics, 'ab/b'))], [])
  assert.deepEqual(await linesOf(metrics, 'cd/a'), stays)
  assert.deepEqual(await linesOf(metrics, ''), plain)
})

test('late counts of a removed arm go with the next config', async () => {
  const metrics = createMetrics()
  metrics.arms.follow(['ab/a'])
  countAll(metrics, 'ab/a')
  metrics.arms.follow([])
  metrics.arms.told()
  countAll(metrics, 'ab/a')
  metrics.arms.told()
  assert.ok((await linesOf(metrics, 'ab/a')).length > 0)
  metrics.arms.follow([])
  assert.deepEqual(await linesOf(metrics, 'ab/a'), [])
})

test('where nobody scrapes, arms of a thousand configs leave no series behind', async () => {
  const metrics = createMetrics()
  for (let n = 0; n < 1_000; n++) {
    metrics.arms.follow([`ab/${n}`])
    metrics.tools.of('s', 't', () => true).countCall('returned', 'correct', `ab/${n}`, 1)
  }
  assert.ok(metrics.toolCalls.size <= 17 * 5, String(metrics.toolCalls.size))
  assert.ok(metrics.toolCallDuration.size <= 17)
})

test('the next scrape tells the counts of an arm, after any number of configs', async () => {
  const metrics = createMetrics()
  metrics.arms.follow(['run/treatment'])
  countAll(metrics, 'run/treatment')
  for (let n = 0; n < 3; n++) metrics.arms.follow([])
  assert.ok((await linesOf(metrics, 'run/treatment')).length > 0)
  metrics.arms.told()
  assert.deepEqual(await linesOf(metrics, 'run/treatment'), [])
})

test('an arm that comes back counts from nothing', async () => {
  const metrics = createMetrics()
  const count = () => metrics.tools.of('s', 't', () => true).countCall('returned', 'correct', 'ab/a', 1)
  metrics.arms.follow(['ab/a'])
  count()
  count()
  metrics.arms.follow([])
  metrics.arms.told()
  metrics.arms.follow(['ab/a'])
  count()
  assert.match(await metrics.registry.metrics(), /^breakwater_tool_calls_total\{[^}]*arm="ab\/a"\} 1$/m)
})
