import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '../../deploy/check/promql.ts'
import { substitute } from '../../deploy/check/substitute.ts'

test('an expression is taken apart into metrics, their labels, and what it groups by', () => {
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

test('what is no PromQL is told, and where', () => {
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
