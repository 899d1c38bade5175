import assert from 'node:assert/strict'
import { test } from 'node:test'
import { format, resolveConfig } from 'prettier'
import { charts, doublings, drawn } from '../../bench/full/chart.ts'
import type { Figures } from '../../bench/full/load.ts'
import { filled, parts } from '../../bench/full/page.ts'
import type { Results, RowResult } from '../../bench/full/results.ts'
import { summarise } from '../../bench/full/summary.ts'

/** A row of three rounds with so much CPU and latency. */
function row(
  name: string,
  kind: RowResult['kind'],
  cpu: readonly number[],
  p50Ms: readonly number[],
): RowResult {
  const rounds = [0, 1, 2].map((round): Figures => {
    const [cpuMicrosPerCall, p50] = [cpu[round], p50Ms[round]]
    return {
      callsPerSecond: 1_234,
      ...(cpuMicrosPerCall !== undefined && { cpuMicrosPerCall, rssBytes: 100 * 1024 ** 2 }),
      ...(p50 !== undefined && { paced: { calls: 9, p50Ms: p50, p99Ms: 2 * p50, lateP99Ms: 0.1 } }),
    }
  })
  return { name, title: `way <${name}>`, kind, rounds }
}

const direct = row('direct', 'reference', [], [1, 2, 3])
const floor = row('floor', 'reference', [10, 20, 40], [1.5, 2.5, 3.5])
const server = row('server', 'ours', [20, 40, 40], [2, 3.5, 4])
const slow = row('slow', 'peer', [100, 400, 400], [9, 9])
const base = { name: 'base', title: 'Base: a load', perSecond: 600, rows: [direct, floor, server, slow] }
const results: Results = {
  machine: { cpu: 'A <CPU>', cores: 2, node: 'v20.0.0' },
  date: '2026-01-01',
  command: 'npm run bench:full -- --quick',
  cells: [
    base,
    { ...base, name: 'sse', title: 'Replies as event streams' },
    {
      ...base,
      name: 'policies',
      title: 'One policy at a time',
      rows: [
        direct,
        floor,
        row('no-policy', 'ours', [10, 10, 10], []),
        row('retry', 'ours', [11, 12, 13], []),
      ],
    },
  ],
  leftOut: [{ title: 'a peer', cell: 'sse', why: 'Error: not there\nmore' }],
}

test('ratios and added latencies are taken round by round, then the median', () => {
  const line = summarise(base).find(({ row }) => row === server)
  assert.deepEqual(line?.timesBase, { lower: 1, median: 2, upper: 2 })
  assert.deepEqual(line?.moreMicros, { lower: 0, median: 10, upper: 20 })
  assert.deepEqual(line?.addedP50Ms, { lower: 1, median: 1, upper: 1.5 })
  assert.deepEqual(line?.addedP99Ms, { lower: 2, median: 2, upper: 3 })
})

test('a table omits figures that a row did not hold in every round, and figures that do not exist', () => {
  const [first, , , last] = summarise(base)
  assert.equal(last?.p50Ms, undefined)
  assert.equal(last?.addedP50Ms, undefined)
  assert.equal(first?.cpuMicrosPerCall, undefined)
  assert.equal(first?.timesBase, undefined)
  assert.equal(first?.addedP50Ms, undefined)
})

test('every part names machine and command of its measurement, in the format of the formatter', async () => {
  const texts = parts(results)
  assert.deepEqual(Object.keys(texts), ['base', 'loads', 'policies', 'left-out'])
  const style = await resolveConfig('docs/README.md')
  for (const text of Object.values(texts)) {
    assert.match(text, /2 × A <CPU>, Node v20.0.0, 2026-01-01, by `npm run bench:full -- --quick`/)
    assert.equal(await format(text, { ...style, parser: 'markdown' }), `${text}\n`)
  }
  assert.match(texts.base!, /\| way <server> +\| +1,234 \| +40 \| +2\.00 \(1\.00–2\.00\) \| +1\.00 \|/)
  assert.match(
    texts.policies!,
    /\| way <retry> +\| +12\.0 \| +1\.200 \(1\.100–1\.300\) \| +2\.0 \(1\.0–3\.0\) \|/,
  )
  assert.match(texts['left-out']!, /- a peer \(sse\): Error: not there$/m)
})

test('measured parts replace their places on a page each time; other parts stay', () => {
  const page = 'a\n\n<!-- bench:full base begins -->\nold\n<!-- bench:full base ends -->\n\nb\n'
  const once = filled(page, { base: 'new', loads: 'nowhere' })
  assert.equal(once, 'a\n\n<!-- bench:full base begins -->\n\nnew\n\n<!-- bench:full base ends -->\n\nb\n')
  assert.equal(filled(once, { base: 'new' }), once)
  assert.equal(filled(once, {}), once)
})

test('a picture has a dot for each row with a ratio, names machine and command, and suits light and dark grounds', () => {
  const all = charts(results)
  assert.deepEqual(Object.keys(all), ['ways', 'cells'])
  const svg = drawn(all.ways!)
  assert.equal(svg.match(/<circle /g)?.length, 2)
  assert.match(svg, /A &lt;CPU&gt;, Node v20\.0\.0, 2026-01-01, by npm run bench:full -- --quick/)
  assert.match(svg, /prefers-color-scheme:dark/)
  assert.doesNotMatch(svg, /NaN|undefined|Infinity|way <server>/)
})

test('an axis of doublings holds 1 and all ratios', () => {
  const ratio = (value: number) => ({ lower: value, median: value, upper: value })
  assert.deepEqual(doublings([]), [1, 2])
  assert.deepEqual(doublings([ratio(0.3), ratio(5)]), [0.25, 0.5, 1, 2, 4, 8])
})
