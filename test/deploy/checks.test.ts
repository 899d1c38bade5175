import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '../../deploy/check/promql.ts'
import { mismatches } from '../../deploy/check/scripted/compare.ts'
import { measures } from '../../deploy/check/scripted/measures.ts'
import { plainOf } from '../../deploy/check/scripted/plain.ts'
import { splitBy } from '../../deploy/check/splits.ts'
import { substitute } from '../../deploy/check/substitute.ts'

test('an expression is parsed into metrics, their labels, and its grouping', () => {
  const { errors, selectors, grouping } = parse(
    'sum by (tool) (rate(one{server=~"a|b"}[5m])) / on (tool) level:two:rate5m',
  )
  assert.deepEqual(errors, [])
  assert.deepEqual(selectors, [
    { metric: 'one', labels: ['server'], text: 'one{server=~"a|b"}' },
    { metric: 'level:two:rate5m', labels: [], text: 'level:two:rate5m' },
  ])
  assert.deepEqual(grouping, ['tool', 'tool'])
})

test('a metric keeps a label unless an aggregation drops it, or a matcher asks for one value', () => {
  for (const [expr, metrics] of [
    ['rate(one[5m])', ['one']],
    ['one{arm=~"a|b"}', ['one']],
    ['sum by (server, arm) (one) / on (server) group_left two', ['one', 'two']],
    ['sum without (server) (one)', ['one']],
    ['sum(one) + sum by (server) (rate(two[5m]))', []],
    ['sum without (arm) (one)', []],
    ['sum by (server) (sum by (server, arm) (one) > 0 and two)', []],
    ['one{arm=""}', []],
    ['one{server="s",arm="a"}', []],
  ] as const)
    assert.deepEqual(splitBy('arm', expr), metrics, expr)
})

test('invalid PromQL is reported with its place', () => {
  assert.match(parse('sum(rate(one[5m])').errors.join(), /5m/)
  assert.notDeepEqual(parse('one + ').errors, [])
})

test('variables are filled in as Grafana does, and one that nobody defined is an error', () => {
  assert.equal(
    substitute('rate(x{server=~"$server"}[$__rate_interval])', { server: 'a' }),
    'rate(x{server=~"a"}[15s])',
  )
  assert.throws(() => substitute('x{tool="$tol"}', { tool: 'a' }), /\$tol/)
})

test('without rates, an expression over rules becomes an expression over increases of counters', () => {
  const rules = new Map([
    ['a:breakwater_part:rate5m', 'sum by (a) (rate(part{b!~"c|d"}[5m]))'],
    ['a:breakwater_ratio:rate5m', 'a:breakwater_part:rate5m / (rate(whole[5m]) > 0)'],
  ])
  assert.equal(
    plainOf('a:breakwater_ratio:rate5m', rules, 12.5),
    '((sum by (a) ((part{b!~"c|d"} - part{b!~"c|d"} @ 12.5))) / ((whole - whole @ 12.5) > 0))',
  )
  assert.throws(() => plainOf('a:breakwater_other:rate5m', rules, 1), /no rule a:breakwater_other:rate5m/)
})

test('the scripted run gives the ratios counted by hand', () => {
  const expected = (expr: string) =>
    Object.fromEntries(measures.find((one) => one.expr === expr)?.expected ?? [])
  assert.deepEqual(expected('server_tool:breakwater_eta:ratio_rate5m'), {
    'scripted/price': [6, 7],
    'scripted/stock': [3, 7],
    'scripted/note': [3, 4],
    'scripted/audit': [0, 2],
    'scripted/slow': [0, 1],
  })
  assert.deepEqual(expected('server_tool:breakwater_call_eta:ratio_rate5m')['scripted/stock'], [3, 4])
  assert.deepEqual(expected('server:breakwater_availability:ratio_rate5m'), { 'scripted/': [15, 21] })
  assert.deepEqual(expected('server:breakwater_correctness:ratio_rate5m'), { 'scripted/': [12, 15] })
  assert.deepEqual(expected('server:breakwater_unchecked:ratio_rate5m'), { 'scripted/': [2, 15] })
  assert.deepEqual(expected('server:breakwater_tcsr:ratio_rate5m'), { 'scripted/': [12, 19] })
  assert.deepEqual(expected('server:breakwater_amplification:ratio_rate5m'), { 'scripted/': [24, 21] })
  assert.deepEqual(expected('gateway:breakwater_tcaf:ratio_rate5m'), { '/': [20, 8] })
  assert.deepEqual(expected('gateway:breakwater_blast_radius:ratio_rate5m'), { '/': [5, 8] })
  assert.equal(
    expected('server_tool:breakwater_correctness:ratio_rate5m')['scripted/slow'],
    undefined,
    'a tool without replies has no correctness',
  )
})

test('a missing, empty or slightly wrong ratio is reported', () => {
  const expected = new Map([['a', [2, 3] as const]])
  const told = (found: readonly (readonly [string, number])[], tolerance = 0) =>
    mismatches('x', expected, new Map(found), tolerance)
  assert.deepEqual(told([['a', 4 / 6]]), [])
  assert.match(told([]).join(), /found nothing for a, expected 2\/3/)
  assert.match(told([['a', NaN]]).join(), /NaN for a/)
  assert.match(told([['a', 2 / 3 + 1e-15]]).join(), /for a, expected 2\/3/)
  assert.deepEqual(told([['a', 2 / 3 + 1e-15]], 1e-9), [])
  assert.match(
    told([
      ['a', 2 / 3],
      ['b', 1],
    ]).join(),
    /found 1 for b, expected nothing/,
  )
})
