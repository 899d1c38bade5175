import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  approachInWords,
  breachInWords,
  Gate,
  type Rule,
  ruleInWords,
} from '../../../src/experiments/guarded/gate.ts'
import { figuresOf } from './figures.ts'

const rule = (more: Partial<Rule> = {}): Rule => ({
  metric: 'error_ratio',
  above: 0.05,
  of: 'treatment',
  for: 0,
  ...more,
})

const arms = (treatment: object, control: object = {}) => ({
  control: figuresOf(control),
  treatment: figuresOf(treatment),
})

test('a rule is broken above its number, and not at it', () => {
  const gate = new Gate({ rules: [rule()], minimum: 10 })
  assert.equal(gate.look(0, arms({ calls: 100, failed: 5 })), undefined)
  const breach = gate.look(0, arms({ calls: 100, failed: 6 }))
  assert.ok(breach)
  assert.equal(breachInWords(breach), 'error_ratio of treatment was 6% over 100 calls, above 5%')
})

test('a rule triggers at the first look after being broken for its whole time', () => {
  const gate = new Gate({ rules: [rule({ for: 1_000 })], minimum: 10 })
  const bad = arms({ failed: 50 })
  assert.equal(gate.look(0, bad), undefined)
  assert.equal(gate.look(999, bad), undefined)
  assert.equal(gate.look(1_000, bad)?.forMs, 1_000)
})

test('a good look restarts the time of a rule, and an unmeasurable look does not', () => {
  const gate = new Gate({ rules: [rule({ for: 1_000 })], minimum: 10 })
  const bad = arms({ failed: 50 })
  gate.look(0, bad)
  gate.look(500, arms({ failed: 0 }))
  assert.equal(gate.look(1_000, bad), undefined)
  assert.equal(gate.look(1_500, arms({ calls: 3, failed: 3 })), undefined)
  assert.ok(gate.look(2_000, bad))
})

test('with fewer calls than the minimum nothing is judged', () => {
  const gate = new Gate({ rules: [rule()], minimum: 10 })
  assert.equal(gate.look(0, arms({ calls: 9, failed: 9 })), undefined)
  assert.ok(gate.look(0, arms({ calls: 10, failed: 10 })))
})

test('a difference is treatment minus control, and needs both', () => {
  const gate = new Gate({ rules: [rule({ metric: 'p95', above: 100, of: 'difference' })], minimum: 10 })
  assert.equal(gate.look(0, arms({ p95: 600 }, { p95: 550 })), undefined)
  assert.equal(gate.look(0, arms({ p95: 600 }, { calls: 2, p95: 5 })), undefined)
  assert.equal(gate.look(0, arms({ p95: 600 }, { p95: 480 }))?.value, 120)
})

test('a rule of the control looks at the control', () => {
  const gate = new Gate({ rules: [rule({ of: 'control' })], minimum: 10 })
  assert.equal(gate.look(0, arms({ failed: 100 })), undefined)
  assert.ok(gate.look(0, arms({}, { failed: 100 })))
})

test('rules are explained in words', () => {
  assert.equal(
    ruleInWords(rule({ metric: 'p99', above: 800, of: 'difference', for: 30_000 })),
    'p99 of treatment minus control above 800ms for 30s',
  )
  assert.equal(ruleInWords(rule({ learned: 'static' })), 'error_ratio of treatment above 5% (static)')
})

test('durations are judged by calls that hang, too, and shares are not', () => {
  const rules = [rule(), rule({ metric: 'p95', above: 100 })]
  const gate = new Gate({ rules, minimum: 10 })
  const hanging = arms({ calls: 0, failed: 0, waiting: 10, p95: 5_000 })
  assert.equal(gate.look(0, hanging)?.rule.metric, 'p95')
  assert.equal(new Gate({ rules: [rule()], minimum: 10 }).look(0, hanging), undefined)
})

test('a gate knows which of its rules could not be measured since some time', () => {
  const blind = rule({ metric: 'p95', above: 100, of: 'difference' })
  const gate = new Gate({ rules: [rule(), blind], minimum: 10 })
  gate.look(1_000, arms({}, { calls: 2 }))
  assert.deepEqual(gate.unmeasuredSince(1_000), [blind])
  gate.look(2_000, arms({}))
  assert.deepEqual(gate.unmeasuredSince(1_000), [])
  assert.equal(gate.unmeasuredSince(2_001).length, 2)
})

test('a gate keeps the measurement nearest to its limit, over all rules and looks', () => {
  const slow = rule({ metric: 'p95', above: 100 })
  const gate = new Gate({ rules: [rule(), slow], minimum: 10 })
  assert.equal(gate.nearest, undefined)
  gate.look(0, arms({ calls: 9, failed: 9, p95: 99 }))
  assert.equal(gate.nearest, undefined, 'too few calls for a measurement')
  gate.look(1_000, arms({ failed: 4, p95: 50 }))
  assert.equal(
    approachInWords(gate.nearest!),
    'error_ratio of treatment was 4% over 100 calls, with 5% allowed',
  )
  gate.look(2_000, arms({ failed: 0, p95: 90 }))
  gate.look(3_000, arms({ failed: 0, p95: 20 }))
  assert.deepEqual(gate.nearest, { rule: slow, value: 90, calls: 100 })
})

test('a limit of 0 and a learned limit have no nearest measurement', () => {
  const gate = new Gate({ rules: [rule({ above: 0 }), rule({ learned: 'static' })], minimum: 10 })
  gate.look(0, arms({ failed: 0 }))
  gate.look(1_000, arms({ failed: 5 }))
  assert.equal(gate.nearest, undefined)
})
