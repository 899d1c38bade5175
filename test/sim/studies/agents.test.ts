import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { faults as registry } from '../../../src/chaos/faults/index.ts'
import { methodsOf } from '../../../src/chaos/plan/checks.ts'
import { serverKind } from '../../../src/sim/environment.ts'
import { taskEnds } from '../../../src/sim/agents.ts'
import { numberIn, rowOf, runAsShown } from './findings.ts'

const findings = await runAsShown('agents')
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

test('each family of faults that hits calls of these servers is among them', () => {
  // These servers ask nothing of agents, and composite faults consist of the other faults.
  const left = new Set(['server_request', 'hol', 'fanout', 'retry', 'pool'])
  const families = (types: readonly string[]) =>
    new Set(types.filter((type) => type.includes('.')).map((type) => type.slice(0, type.indexOf('.'))))
  const hitting = Object.entries(registry).flatMap(([type, known]) => {
    const hits = methodsOf(known).includes('tools/call') && refusalOf(known, serverKind) === undefined
    return hits ? [type] : []
  })
  const shown = families(findings.tables[0]!.rows.map(({ fault }) => String(fault)))
  assert.deepEqual(
    [...families(hitting)].filter((family) => !left.has(family) && !shown.has(family)),
    [],
  )
})

test('an argument that was lost on the way deceives naive agents, and an answer of the wrong server all', () => {
  assert.ok(silent('request.argument_lost', 'naive: default') > 0.2)
  assert.equal(silent('request.argument_lost', 'naive: default, enforced'), 0)
  assert.equal(silent('request.argument_lost', 'checking: none'), 0)
  for (const way of ['naive: none', 'checking: default, enforced'])
    assert.ok(silent('route.wrong_backend', way) > 0.2, way)
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
  assert.ok(
    findings.seen.some((sentence) => /^The study shows nothing about .*result\.stale \(/.test(sentence)),
  )
})

test('only faults that nothing lowers are said to be lowered by nothing', () => {
  const found = findings.seen.find((sentence) => sentence.startsWith('No agent or policy'))!
  assert.match(found, /result\.clock_skew/)
  assert.doesNotMatch(found, /result\.partial/)
  const best = findings.seen.find((sentence) => sentence.startsWith('Against naive: none'))!
  assert.match(best, /"checking: default" under [^"]*result\.partial/)
})
