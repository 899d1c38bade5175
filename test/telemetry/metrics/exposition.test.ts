import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { Exposition } from '../../../src/telemetry/metrics/exposition.ts'
import { ManualClock } from '../../support/manual-clock.ts'

function setUp() {
  const clock = new ManualClock()
  const metrics = createMetrics()
  const told: string[] = []
  const exposition = new Exposition({
    maxAgeMs: () => 1_000,
    clock,
    registries: [metrics.registry],
    prepare: () => told.push('prepare'),
    written: () => told.push('written'),
  })
  return { clock, metrics, told, exposition }
}

test('text and OpenMetrics say the same, each in its own words, however often they take turns', async () => {
  const { clock, metrics, exposition } = setUp()
  metrics.requests.inc({ server: 's', result: 'returned' })
  metrics.tools.of('s', 't', () => true).countCall('returned', 'correct', '', 0.04, 'abc', 5_000)
  for (let turn = 0; turn < 3; turn++) {
    const text = String(await exposition.write('text'))
    assert.equal(text, await metrics.registry.metrics().then((theirs) => theirs.replaceAll('\n\n', '\n')))
    const open = String(await exposition.write('openmetrics'))
    assert.match(open, /^# TYPE breakwater_requests counter\nbreakwater_requests_total\{[^}]*\} 1$/m)
    assert.match(open, /_bucket\{le="0\.05",server="s",tool="t"\} 1 # \{trace_id="abc"\} 0\.04 5$/m)
    assert.ok(open.endsWith('\n# EOF\n'))
    assert.doesNotMatch(text, /trace_id|EOF/)
    await clock.advance(1_000)
  }
})

test('within a second everybody gets the same text, and nothing is read again', async () => {
  const { clock, metrics, told, exposition } = setUp()
  const all = await Promise.all([1, 2, 3].map(() => exposition.write('text')))
  assert.equal(new Set(all).size, 1)
  metrics.sessions.set(7)
  await clock.advance(999)
  assert.equal(await exposition.write('text'), all[0])
  assert.deepEqual(told, ['prepare', 'written'])
  await clock.advance(1)
  assert.match(String(await exposition.write('text')), /^breakwater_sessions 7$/m)
})

test('a failed read is repeated for the next reader', async () => {
  const { clock, metrics } = setUp()
  let works = false
  const exposition = new Exposition({
    maxAgeMs: () => 1_000,
    clock,
    registries: [metrics.registry],
    prepare() {
      if (!works) throw new Error('not yet')
    },
  })
  await assert.rejects(exposition.write('text'), /not yet/)
  works = true
  assert.match(String(await exposition.write('text')), /^breakwater_sessions 0$/m)
})

test('hostile names make neither lines nor labels of their own', async () => {
  const { metrics, exposition } = setUp()
  const tools = ['a"} 1\nforged_total{x="', 'b\\', 'c\n# EOF', 'd,e="f"']
  for (const tool of tools) metrics.tools.of('s', tool, () => true).countCall('returned', 'correct', '', 1)
  metrics.configInfo.set({ hash: 'q"\\\n' }, 1)
  const open = String(await exposition.write('openmetrics'))
  const sample = /^[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? [-+0-9.eInf]+$/
  for (const line of open.split('\n').slice(0, -2))
    assert.match(line, line.startsWith('#') ? /^# (HELP|TYPE) / : sample)
  assert.equal([...open.matchAll(/^breakwater_tool_calls_total\{.*result="returned"/gm)].length, tools.length)
})

test('Prometheus gets what a new series has counted in its second reading, so that rates lose none of it', async () => {
  const { clock, metrics, exposition } = setUp()
  const linesOf = async (isScrape: boolean) => {
    await clock.advance(15_000)
    const text = String(await exposition.write('text', isScrape))
    const value = (name: string) =>
      new RegExp(`^breakwater_${name}(?:\\{.*\\})? (\\S+)$`, 'm').exec(text)?.[1]
    return [
      value('requests_total'),
      value('tool_call_duration_seconds_count'),
      value('tool_call_duration_seconds_sum'),
      value('sessions'),
      value('chaos_journal_dropped_total'),
    ]
  }
  metrics.requests.inc({ server: 's', result: 'returned' }, 3)
  metrics.tools.of('s', 't', () => true).countCall('returned', 'correct', '', 2)
  metrics.sessions.set(7)
  metrics.chaosJournalDropped.inc({}, 5)
  assert.deepEqual(await linesOf(false), ['3', '1', '2', '7', '5'])
  // A count without labels may go on from the process before.
  assert.deepEqual(await linesOf(true), ['0', '0', '0', '7', '5'])
  assert.deepEqual(await linesOf(false), ['3', '1', '2', '7', '5'])
  metrics.requests.inc({ server: 's', result: 'returned' })
  assert.deepEqual(await linesOf(true), ['4', '1', '2', '7', '5'])
})

test('counts of more than five minutes are no news to a Prometheus that comes late', async () => {
  const { clock, metrics, exposition } = setUp()
  metrics.requests.inc({ server: 's', result: 'returned' }, 3)
  await clock.advance(300_001)
  const late = String(await exposition.write('text', true))
  assert.match(late, /^breakwater_requests_total\{.*\} 3$/m)
})
