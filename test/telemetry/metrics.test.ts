import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createMetrics } from '../../src/telemetry/metrics.ts'

/** Every metric there is, as a scrape shows it. */
async function described(): Promise<{ name: string; type: string; help: string }[]> {
  const metrics = await createMetrics().registry.getMetricsAsJSON()
  return metrics.map(({ name, type, help }) => ({ name, type: String(type), help }))
}

test('names begin with ours, say their unit, and counters end as counters do', async () => {
  for (const { name, type, help } of await described()) {
    assert.match(name, /^breakwater_[a-z_]+$/)
    assert.ok(help.length > 10, name)
    assert.equal(name.endsWith('_total'), type === 'counter', name)
    assert.equal(/duration|timestamp/.test(name), name.endsWith('_seconds'), name)
  }
})

test('two gateways in one process count each for itself', async () => {
  const [one, other] = [createMetrics(), createMetrics()]
  one.sessions.set(7)
  assert.match(await one.registry.metrics(), /^breakwater_sessions 7$/m)
  assert.match(await other.registry.metrics(), /^breakwater_sessions 0$/m)
})

test('buckets cover what a tool call may take, from hundredths of a second to minutes', async () => {
  const { toolCallDuration, registry } = createMetrics()
  toolCallDuration.observe({ server: 's', tool: 't' }, 0.5)
  const bounds = [...(await registry.metrics()).matchAll(/_bucket\{le="([^"]+)"/g)].map(([, bound]) =>
    Number(bound),
  )
  const finite = bounds.slice(0, -1)
  assert.deepEqual(
    finite,
    finite.toSorted((a, b) => a - b),
  )
  assert.deepEqual([finite[0], finite.at(-1)], [0.01, 300])
})

test('what is under way is read at the scrape, also when it is nothing', async () => {
  const { inFlight, registry } = createMetrics()
  inFlight.set('s', 2)
  assert.match(await registry.metrics(), /^breakwater_inflight\{server="s"\} 2$/m)
  inFlight.set('s', 0)
  assert.match(await registry.metrics(), /^breakwater_inflight\{server="s"\} 0$/m)
})
