import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { reasons } from '../../src/mesh/errors.ts'
import { ATTRIBUTES } from '../../src/telemetry/tracing/spans.ts'
import { events, facts, operators, policyMetrics } from '../../src/policies/descriptions.ts'
import { policies } from '../../src/policies/index.ts'

const own = Object.values(policies)

function assertDistinct(names: readonly string[], what: string): void {
  assert.deepEqual(names.toSorted(), [...new Set(names)].toSorted(), what)
}

test('no two policies use one name for different things', () => {
  assertDistinct(
    [...Object.keys(reasons), ...own.flatMap(({ reasons = [] }) => reasons.map(({ name }) => name))],
    'reasons',
  )
  assertDistinct(
    facts.map(({ fact }) => fact.telemetry.log),
    'keys of the access log',
  )
  const attributes = facts.flatMap(({ fact }) => fact.telemetry.attribute ?? [])
  assertDistinct([...Object.values(ATTRIBUTES), ...attributes], 'attributes of spans')
  assertDistinct(
    own.flatMap((policy) => Object.keys(policy.events ?? {})),
    'types of events',
  )
  assert.equal(events.size, own.flatMap((policy) => Object.keys(policy.events ?? {})).length)
  assertDistinct(
    [...new Set(own.flatMap(({ states: kept = [] }) => kept))].map(
      ({ kind, gauge }) => `${kind} ${gauge?.metric.name}`,
    ),
    'kinds of state',
  )
  assertDistinct(
    operators.map(([, { path }]) => path),
    'paths of the admin API',
  )
  assertDistinct(
    policyMetrics.map(({ name }) => name),
    'metrics',
  )
})

test('every noted fact belongs to one policy, which describes the fact', () => {
  assert.equal(new Set(facts.map(({ fact }) => fact.slot)).size, facts.length)
  const policies = new URL('../../../src/policies', import.meta.url)
  const modules = readdirSync(policies, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  )
  const made = modules.flatMap(
    (name) => readFileSync(`${policies.pathname}/${name}`, 'utf8').match(/new (Count)?Fact\b/g) ?? [],
  )
  assert.equal(made.length, facts.length)
})

test('every policy says when to use it, in at most four sentences of its own', () => {
  for (const [name, { use }] of Object.entries(policies)) {
    assert.match(use, /^[A-Z].*\.$/, name)
    assert.ok([1, 2, 3, 4].includes(use.split(/\.(?= [A-Z]|$)/).length - 1), `${name}: ${use}`)
  }
  assertDistinct(
    own.map(({ use }) => use),
    'uses',
  )
})

test('texts of policies are sentences', () => {
  const said = [
    ...own.flatMap(({ reasons = [] }) => reasons.map(({ about }) => about)),
    ...Object.values(reasons).map(({ about }) => about),
    ...facts.map(({ fact }) => fact.telemetry.about),
    ...[...events.values()].map(({ about }) => about),
  ]
  for (const about of said) assert.match(about, /^[A-Z].*\.$/)
})
