import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import type { Clock } from '../../../src/mesh/clock.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { Exposition } from '../../../src/telemetry/metrics/exposition.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const TOOLS = 500

const endings = [
  ['returned', 'correct'],
  ['returned', 'tool_error'],
  ['returned', 'schema_invalid'],
  ['rpc_error', 'rpc_error'],
  ['caller_error', 'rpc_error'],
  ['timeout', ''],
  ['transport_error', ''],
  ['rejected', ''],
] as const

/**
 * Five hundred tools with calls of every ending; each read of the clock takes `msPerLook`, `between` runs at each
 * yield.
 */
function setUp({ msPerLook = 1, between = () => {} }: { msPerLook?: number; between?: () => void } = {}) {
  const manual = new ManualClock()
  const metrics = createMetrics()
  for (let index = 0; index < TOOLS; index++) {
    const series = metrics.tools.of('s', `tool ${index}`, () => true)
    for (const [ending, verdict] of endings) {
      series.countCall(ending, verdict, '', index / 100, `trace ${index}`, index)
      series.countAttempt(ending, verdict, '')
    }
  }
  let elapsed = 0
  const seen = { turns: 0 }
  const clock: Clock = {
    isReal: false,
    now: () => (elapsed += msPerLook),
    wall: () => manual.wall(),
    after(ms, task) {
      seen.turns++
      return manual.after(ms, () => {
        between()
        task()
      })
    },
    sleep: (ms, signal) => manual.sleep(ms, signal),
  }
  const exposition = new Exposition({
    maxAgeMs: () => 0,
    clock,
    registries: [metrics.registry],
    prepare: () => undefined,
  })
  async function write(format: 'text' | 'openmetrics'): Promise<string> {
    const writing = exposition.write(format)
    let isOver = false
    void writing.then(() => (isOver = true))
    while (!isOver) await manual.advance(0)
    assert.equal(manual.pending, 0)
    return String(await writing)
  }
  return { metrics, seen, write }
}

test('others get their turn every few milliseconds, however much there is to write', async () => {
  const { seen, write } = setUp()
  const { length } = await write('text')
  // A millisecond passes for every 32 Ki characters here; after four the exposition yields.
  assert.ok(length > 1_500_000 && length / (seen.turns + 1) < 150_000, `${length} in ${seen.turns} turns`)
})

test('fast exposition does not wait either', async () => {
  const { seen, write } = setUp({ msPerLook: 0 })
  await write('text')
  assert.equal(seen.turns, 0)
})

test('every series of every ending is written like prom-client writes it, in any number of turns', async () => {
  const { metrics, write } = setUp()
  const text = await write('text')
  assert.equal(text, (await metrics.registry.metrics()).replaceAll('\n\n', '\n'))
  for (const [ending, verdict] of endings) {
    const line = `{server="s",tool="tool 499",outcome="${ending}"${verdict && `,verdict="${verdict}"`}} 1`
    assert.ok(text.includes(`\nbreakwater_upstream_attempts_total${line}\n`), line)
  }
})

test('OpenMetrics has the same lines, but for the names of counters, the traces and the end', async () => {
  const { write } = setUp()
  const [text, open] = [await write('text'), await write('openmetrics')]
  assert.equal(open.match(/ # \{trace_id="trace \d+"\} /g)?.length, TOOLS)
  const plain = open.replaceAll(/ # \{trace_id.*$/gm, '').replace('# EOF\n', '')
  assert.equal(
    plain,
    text.replaceAll(/^(# (?:HELP|TYPE) .*?)_total /gm, (_, before: string) => `${before} `),
  )
})

test('a histogram shows one moment, even when calls end during the write', async () => {
  const { write, metrics, seen } = setUp({
    between() {
      for (let index = 0; index < TOOLS; index++)
        metrics.tools.of('s', `tool ${index}`, () => true).countCall('returned', 'correct', '', 1_000)
    },
  })
  const text = await write('text')
  const all = [...text.matchAll(/_seconds_bucket\{le="\+Inf",server="s",tool="(.*)"\} (\d+)$/gm)]
  assert.equal(all.length, TOOLS)
  for (const [, tool, count] of all)
    assert.ok(text.includes(`_duration_seconds_count{server="s",tool="${tool}"} ${count}\n`), tool)
  assert.ok(seen.turns > 0)
})

test('a server may be forgotten during the write, and come back', async () => {
  const { write, metrics } = setUp({
    between() {
      metrics.forgetServer('s')
      metrics.tools.of('s', 'new', () => true).countCall('returned', 'correct', '', 1)
    },
  })
  await write('text')
  const text = await write('text')
  assert.match(text, /^breakwater_tool_calls_total\{server="s",tool="new",result="returned"\} \d+$/m)
  assert.doesNotMatch(text, /tool="tool/)
})

const { error } = spawnSync('promtool', ['--version'])
const skip =
  error === undefined ? false : 'promtool is not installed: Debian has it in its package prometheus'

test('Prometheus finds nothing to object to in the text', { skip }, async () => {
  const { write } = setUp()
  const input = await write('text')
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' })
  assert.deepEqual([status, stdout, stderr], [0, '', ''])
})
