import assert from 'node:assert/strict'
import { test } from 'node:test'
import { taskEnds } from '../../../src/sim/agents.ts'
import { agents } from '../../../src/sim/studies/agents.ts'
import { numberIn, rowOf, runTwice } from './twice.ts'

const findings = await runTwice(agents)
const share = (end: string, fault: string, way: string) => numberIn(rowOf(findings, { fault }, end), way)
const silent = (fault: string, way: string) => share('failed_silently', fault, way)

test('a naive agent takes answers of the wrong shape, and a checking one asks again', () => {
  for (const fault of ['result.empty', 'result.error_as_success', 'result.wrong_entity']) {
    assert.ok(silent(fault, 'naive: none') > 0.1, fault)
    assert.equal(silent(fault, 'checking: none'), 0, fault)
    assert.ok(share('succeeded', fault, 'checking: none') > 0.9, fault)
  }
})

test('a checking agent notices partial answers once a verdict flags them', () => {
  assert.ok(silent('result.partial', 'naive: default') > 0.3)
  assert.ok(silent('result.partial', 'checking: none') > 0.3)
  assert.ok(silent('result.partial', 'checking: default') < 0.1)
})

test('an enforcing verdict keeps answers of the wrong shape from naive agents, and wrong values from nobody', () => {
  assert.equal(silent('result.empty', 'naive: default, enforced'), 0)
  assert.ok(silent('result.drift', 'naive: default, enforced') < silent('result.drift', 'naive: default'))
  assert.ok(silent('result.clock_skew', 'checking: default, enforced') > 0.3)
})

test('errors fail tasks safely, and retries mend them', () => {
  assert.equal(silent('rpc.error', 'naive: none'), 0)
  assert.ok(share('failed_safely', 'rpc.error', 'naive: none') > 0.2)
  assert.ok(share('failed_safely', 'rpc.error', 'naive: default') < 0.05)
})

test('the ends of the tasks of a cell make up all of them', () => {
  for (const fault of ['result.drift', 'conn.reset'])
    for (const way of ['naive: none', 'checking: default']) {
      const whole = taskEnds.reduce((sum, end) => sum + share(end, fault, way), 0)
      assert.ok(Math.abs(whole - 1) < 1e-6, `${fault}, ${way}: ${whole}`)
    }
})

test('faults that do nothing to simulated servers are not applicable, and not harmless', () => {
  for (const end of taskEnds) {
    const row = rowOf(findings, { fault: 'result.stale' }, end)
    assert.equal(row['naive: none'], null)
    assert.match(String(row.note), /^not applicable: /)
  }
  assert.ok(findings.seen.some((sentence) => /^Nothing is said of .*result\.stale \(/.test(sentence)))
})

test('only faults that nothing lowers are said to be lowered by nothing', () => {
  const found = findings.seen.find((sentence) => sentence.startsWith('No agent and no policy'))!
  assert.match(found, /result\.clock_skew/)
  assert.doesNotMatch(found, /result\.partial/)
  const best = findings.seen.find((sentence) => sentence.startsWith('Against naive: none'))!
  assert.match(best, /"checking: default" under [^"]*result\.partial/)
})
