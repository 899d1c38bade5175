import assert from 'node:assert/strict'
import { test } from 'node:test'
import { csvOf, Room, Samples, taskUnit, tenantUnit } from '../../src/experiments/samples.ts'

/** The first fields of the lines for units with these keys. */
function unitsTold(keys: readonly string[]): string[] {
  const samples = new Samples(new Room())
  for (const key of keys) samples.begin(key, 'control', { tenant: '', now: 0 })
  return [...csvOf(samples.all())].slice(1).map((line) => line.replace(/,control,.*\n$/, ''))
}

test('any task name is one field on one line', () => {
  const told = unitsTold([
    taskUnit('meta', 'raw', 'two\nlines, "quoted"\r\u0000\u2028'),
    taskUnit('meta', 'two\nlines', 'a/b'),
    tenantUnit('a/b'),
  ])
  assert.deepEqual(told, [
    '"meta raw/two\\u000alines, ""quoted""\\u000d\\u0000\u2028"',
    'meta two\\u000alines/a/b',
    'tenant a\\u002fb',
  ])
})

test('no two units share a key or a name', () => {
  const tasks = [
    ['a', 'b/c'],
    ['a/b', 'c'],
    ['a', 'b\u0001'],
    ['a', 'b\u0002'],
    ['a', 'b\\u0001'],
    ['a', 'b '],
    ['a\\u002fb', 'c'],
    ['a', 'b\nc'],
    ['a\nb', 'c'],
  ] as const
  const tenants = ['a/b', 'a\nb', 'a\\u000ab']
  const keys = [...tasks.map(([tenant, id]) => taskUnit('meta', tenant, id)), ...tenants.map(tenantUnit)]
  assert.equal(new Set(keys).size, keys.length)
  assert.equal(new Set(unitsTold(keys)).size, keys.length)
})

test('a unit is listed with the inputs of its verdict', () => {
  const samples = new Samples(new Room())
  const sample = samples.begin('meta raw\ntask', 'control', { tenant: '', now: 0 })!
  Object.assign(sample, {
    calls: 4,
    failed: 1,
    valid: 3,
    eligible: 2,
    returned: 2,
    good: 2,
    unchecked: 1,
    attempts: 6,
    totalMs: 31.23456,
  })
  sample.durations.push(1.0004, 30.2)
  sample.outcome = 'failed'
  samples.mark([sample])
  assert.deepEqual(
    [...csvOf([sample])],
    [
      'unit,arm,calls,failed,valid,eligible,returned,good,unchecked,attempts,under_way,total_ms,outcome,judged,durations_ms\n',
      'meta raw/task,control,4,1,3,2,2,2,1,6,1,31.235,failed,yes,1 30.2\n',
    ],
  )
})
