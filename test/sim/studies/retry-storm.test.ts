import assert from 'node:assert/strict'
import { test } from 'node:test'
import { numberIn, rowOf, runAsShown } from './findings.ts'

const findings = await runAsShown('retry-storm')
const ALL = 'agent x gateway x SDK'
const arm = (levels: string, budgets: string) => rowOf(findings, { levels, budgets })

test('without budgets three levels of retries offer far more than with them', () => {
  const attempts = (budgets: string) => numberIn(arm(ALL, budgets), 'amplification')
  assert.ok(attempts('none') > 5 * attempts('every level'), `${attempts('none')}, ${attempts('every level')}`)
  assert.ok(attempts('none') > 1.5 * attempts('gateway'))
  assert.ok(numberIn(arm(ALL, 'none'), 'peak') > 1_000)
})

test('without retries the server recovers on its own', () => {
  const { mostTries, amplification, recovered } = arm('nobody', 'none')
  assert.deepEqual([mostTries, amplification, recovered], [1, 1, 1])
})

test('each level multiplies what the others send', () => {
  const [one, two, three] = ['agent', 'agent x gateway', ALL].map((levels) =>
    numberIn(arm(levels, 'none'), 'amplification'),
  ) as [number, number, number]
  assert.ok(two > 1.9 * one && three > 1.9 * two, `${one}, ${two}, ${three}`)
  assert.deepEqual(
    [1, 2, 3].map((levels) => 3 ** levels),
    [arm('agent', 'none').mostTries, arm('agent x gateway', 'none').mostTries, arm(ALL, 'none').mostTries],
  )
})

test('a storm without budgets outlives the pause that set it off, and budgets end it', () => {
  assert.equal(arm('agent', 'none').recovered, 0)
  assert.equal(arm('agent', 'every level').recovered, 1)
  assert.equal(arm('agent x gateway', 'gateway').recovered, 0)
  assert.equal(arm(ALL, 'gateway, all policies').recovered, 1)
})

test('lines over time show the pause', () => {
  const storm = findings.series.find(({ name }) => name === 'agent, budgets: none')!
  const answers = storm.lines.find(({ name }) => name === 'answers/s')!.values
  assert.equal(storm.atS.length, answers.length)
  assert.ok(answers[5]! > 50)
  assert.equal(answers[12], 0)
  assert.equal(answers.at(-1), 0)
})
