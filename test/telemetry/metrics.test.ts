import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createMetrics, table } from '../../src/telemetry/metrics.ts'

/** Returns every metric, as a scrape shows metrics. */
async function described(): Promise<{ name: string; type: string; help: string }[]> {
  const metrics = await createMetrics().registry.getMetricsAsJSON()
  return metrics.map(({ name, type, help }) => ({ name, type: String(type), help }))
}

test('names begin with ours or are those of conventions, say their unit, and counters end as counters do', async () => {
  for (const { name, type, help } of await described()) {
    assert.match(
      name,
      /^(?:breakwater_[a-z_]+|mcp_(?:server|client)_(?:operation|session)_duration_seconds)$/,
    )
    assert.ok(help.length > 10, name)
    assert.equal(name.endsWith('_total'), type === 'counter', name)
    assert.equal(/duration|timestamp|overhead/.test(name), name.endsWith('_seconds'), name)
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
  toolCallDuration.series({ server: 's', tool: 't', arm: '' }).observe(0.5)
  const lines = (await registry.metrics()).matchAll(/^breakwater_tool_call_duration.*_bucket\{le="([^"]+)"/gm)
  const finite = [...lines].map(([, bound]) => Number(bound)).slice(0, -1)
  assert.deepEqual(
    finite,
    finite.toSorted((a, b) => a - b),
  )
  assert.deepEqual([finite[0], finite.at(-1)], [0.01, 300])
})

test('the table says of every metric what its series are, and holds those that the registry has', async () => {
  const lines = table
  assert.deepEqual(
    lines.map(({ name }) => name).toSorted(),
    (await described()).map(({ name }) => name).toSorted(),
  )
  for (const { name, bound, labels } of lines) {
    assert.ok(bound.length > 0, name)
    if (labels.includes('tool')) assert.match(bound, /^tools/, name)
  }
})

test('no two metrics have one name in OpenMetrics, where counters lose their ending', () => {
  const names = table.map(({ name }) => name.replace(/_total$/, ''))
  assert.equal(new Set(names).size, names.length)
})

test('the version that runs can be read', async () => {
  assert.match(
    await createMetrics().registry.metrics(),
    /^breakwater_build_info\{version="\d[^"]*",node="v\d/m,
  )
})

test('a forgotten server leaves no series, and other servers keep all series', async () => {
  const metrics = createMetrics()
  for (const server of ['gone', 'here']) {
    metrics.inFlight.set(server, 0)
    metrics.rejections.inc({ server, reason: 'overloaded', arm: '' })
    metrics.requests.inc({ server, result: 'returned' })
    for (const isListed of [() => true, () => false]) {
      const series = metrics.tools.of(server, 't', isListed)
      series.countCall('returned', 'correct', '', 1)
      series.countAttempt('returned', 'correct', '')
    }
  }
  metrics.tools.of('here', 'u', () => false).countCall('returned', 'correct', '', 1)
  const before = await metrics.registry.metrics()
  metrics.forgetServer('gone')
  const after = await metrics.registry.metrics()
  const without = before.split('\n').filter((line) => !line.includes('server="gone"'))
  assert.ok(without.length < before.split('\n').length)
  assert.deepEqual(after.split('\n'), without)
  assert.deepEqual([...metrics.inFlight.keys()], ['here'])
})

test('a server that comes back counts from nothing', async () => {
  const { tools, registry, forgetServer } = createMetrics()
  const count = () => tools.of('s', 't', () => true).countCall('returned', 'correct', '', 1)
  count()
  count()
  await registry.metrics()
  forgetServer('s')
  count()
  assert.match(await registry.metrics(), /^breakwater_tool_calls_total\{server="s",tool="t",[^}]*\} 1$/m)
})
