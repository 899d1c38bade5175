import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processRegistry } from '../../../src/telemetry/scrape.ts'
import { until } from '../../support/until.ts'

test('the lag of the event loop is a number, also for who asks right after somebody else', async () => {
  const lags = async () => {
    const metrics = await processRegistry().getMetricsAsJSON()
    return metrics
      .filter(({ name }) => name.startsWith('nodejs_eventloop_lag_'))
      .flatMap(({ name, values }) => values.map(({ value }) => [name, value] as const))
  }
  for (const [name, value] of await lags()) assert.ok(value >= 0 && value < 1_000, `${name} is ${value}`)
  let first: Awaited<ReturnType<typeof lags>> = []
  await until('the loop was measured', async () => {
    first = await lags()
    return first.some(([name, value]) => name === 'nodejs_eventloop_lag_min_seconds' && value > 0)
  })
  assert.ok(first.length >= 7)
  const second = await lags()
  for (const [name, value] of second) assert.ok(value >= 0 && value < 1_000, `${name} is ${value}`)
  assert.deepEqual(
    second.filter(([name]) => name !== 'nodejs_eventloop_lag_seconds'),
    first.filter(([name]) => name !== 'nodejs_eventloop_lag_seconds'),
  )
})
