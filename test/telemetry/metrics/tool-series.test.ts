import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { type PerTool, ToolSeries } from '../../../src/telemetry/metrics/tool-series.ts'
import { exposedBy } from '../observed.ts'

const CALLS = 'breakwater_tool_calls_total'

/** Counts a call of each tool. Returns the tools in the exposition with their counts. */
function setUp({ limit, listed = () => true }: { limit?: number; listed?: (tool: string) => boolean } = {}) {
  const metrics = createMetrics()
  if (limit !== undefined) metrics.tools.limit = limit
  const isListed = (_: string, tool: string) => listed(tool)
  return {
    metrics,
    count(...tools: string[]) {
      for (const tool of tools)
        metrics.tools.of('s', tool, isListed).countCall('returned', 'correct', '', 0.1)
    },
    async counted(): Promise<Record<string, number>> {
      const lines = await exposedBy(metrics, CALLS)
      return Object.fromEntries(
        lines.map((line) => {
          const [, tool = '', count] = /tool="([^"]*)".* (\d+)$/.exec(line) ?? []
          return [tool, Number(count)]
        }),
      )
    },
  }
}

test('tools beyond the limit of a server share the series of all others', async () => {
  const { count, counted } = setUp({ limit: 2 })
  count('a', 'b', 'c', 'd', 'a')
  assert.deepEqual(await counted(), { a: 2, b: 1, _other: 2 })
})

test('the limit is one of each server', async () => {
  const { metrics, counted } = setUp({ limit: 1 })
  for (const server of ['x', 'y'])
    metrics.tools.of(server, `of ${server}`, () => true).countCall('returned', 'correct', '', 0.1)
  assert.deepEqual(await counted(), { 'of x': 1, 'of y': 1 })
})

test('places of tools that are listed no more are given to new ones', async () => {
  const catalog = new Set(['a', 'b'])
  const { count, counted, metrics } = setUp({ limit: 2, listed: (tool) => catalog.has(tool) })
  count('a', 'b')
  metrics.tools.of('s', 'a', () => true).countAttempt('returned', 'correct', '')
  await counted()
  catalog.delete('a')
  catalog.add('c')
  count('c', 'b')
  assert.deepEqual(await counted(), { b: 2, c: 1 })
  assert.doesNotMatch(await metrics.registry.metrics(), /tool="a"/)
})

test('a tool of the same name keeps its counts at another server, which lists it', async () => {
  const { metrics, counted } = setUp({ limit: 1 })
  for (const server of ['x', 'y'])
    metrics.tools.of(server, 'a', () => true).countCall('returned', 'correct', '', 0.1)
  metrics.tools.of('y', 'b', (_, tool) => tool === 'b').countCall('returned', 'correct', '', 0.1)
  assert.deepEqual(await counted(), { a: 1, b: 1 })
})

test('while there is room, a tool that is not listed for a moment keeps its counts', async () => {
  const catalog = new Set(['a'])
  const { count, counted } = setUp({ listed: (tool) => catalog.has(tool) })
  count('a')
  catalog.clear()
  count('a')
  assert.deepEqual(await counted(), { a: 2 })
})

test('ten thousand names that somebody makes up are one series', async () => {
  const { count, counted, metrics } = setUp({ listed: () => false })
  count(...Array.from({ length: 10_000 }, (_, index) => `made up ${index}`))
  assert.deepEqual(await counted(), { _other: 10_000 })
  assert.equal(metrics.toolCallDuration.size, 1)
})

test('ten thousand tools that a server lists are as many series as are allowed, and all calls are counted', async () => {
  const { count, counted, metrics } = setUp()
  count(...Array.from({ length: 10_000 }, (_, index) => `tool ${index}`))
  const all = Object.values(await counted())
  assert.equal(all.length, 501)
  assert.equal(
    all.reduce((sum, each) => sum + each),
    10_000,
  )
  assert.deepEqual([metrics.toolCalls.size, metrics.toolCallDuration.size], [5 * 501, 501])
})

test('names with commas do not run together, though prom-client keys series by strung labels', async () => {
  const { count, counted } = setUp()
  const tools = ['1,verdict:x', '1', '1,verdict:y', `${'x'.repeat(10_240)}`, 'a"b', 'a\nb', 'a\\b']
  count(...tools, ...tools)
  assert.deepEqual(Object.values(await counted()), new Array(tools.length).fill(2))
})

test('however many tools go, each metric is asked to forget once', () => {
  const metrics = createMetrics()
  const asked: string[] = []
  const watched = Object.fromEntries(
    Object.entries(metrics)
      .filter(([, metric]) => metric instanceof Object && 'forget' in metric)
      .map(([name, metric]) => [name, Object.assign(metric, { forget: () => void asked.push(name) })]),
  ) as unknown as PerTool
  const catalog = new Set(Array.from({ length: 500 }, (_, index) => `tool ${index}`))
  const tools = new ToolSeries(watched)
  for (const tool of catalog) tools.of('s', tool, () => true)
  tools.of('s', 'one more', (_, tool) => !catalog.has(tool))
  assert.equal(new Set(asked).size, asked.length)
  asked.length = 0
  tools.forget('s')
  assert.ok(asked.length > 0)
  assert.equal(new Set(asked).size, asked.length)
})

test('a good reply, a failure and a rejection are at 0 before there is any: calls and attempts lose only their first', async () => {
  const { metrics } = setUp()
  const ends = [
    ['returned', 'unchecked'],
    ['rpc_error', 'rpc_error'],
    ['timeout', ''],
    ['transport_error', ''],
  ] as const
  const tool = metrics.tools.of('s', 't', () => true)
  tool.countCall('returned', 'tool_error', '', 0.1)
  tool.countAttempt('returned', 'tool_error', '')
  const before = (await metrics.registry.metrics()).split('\n')
  for (const [outcome, verdict] of ends) {
    tool.countCall(outcome, verdict, '', 0.1)
    tool.countAttempt(outcome, verdict, '')
  }
  tool.countCall('rejected', '', '', 0.1)
  for (const [name, ended] of [
    ['tool_call_verdicts_total', 5],
    ['upstream_attempts_total', 4],
  ] as const) {
    const grown = (await exposedBy(metrics, `breakwater_${name}`)).filter((line) => !before.includes(line))
    assert.equal(grown.length, ended)
    for (const line of grown) assert.ok(before.includes(line.replace(/ 1$/, ' 0')), line)
  }
})

test('calls, attempts and durations of each arm have series of their own', async () => {
  const { metrics } = setUp()
  metrics.arms.follow(['ab/a', 'ab/b'])
  const tool = metrics.tools.of('s', 't', () => true)
  for (const [index, arm] of ['', 'ab/a', 'ab/b'].entries())
    for (let n = 0; n <= index; n++) {
      tool.countCall('returned', 'correct', arm, 0.1)
      tool.countAttempt('returned', 'correct', arm)
    }
  for (const name of ['tool_calls_total', 'upstream_attempts_total', 'tool_call_duration_seconds_count']) {
    const lines = await exposedBy(metrics, `breakwater_${name}`)
    const byArm = lines.map((line) => [/arm="([^"]*)"/.exec(line)?.[1] ?? '', Number(line.split(' ').at(-1))])
    assert.deepEqual(Object.fromEntries(byArm), { '': 1, 'ab/a': 2, 'ab/b': 3 }, name)
  }
})
