import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Judged, judgementByClaims } from '../../src/evidence/verdict-by-claims.ts'
import type { Reason } from '../../src/evidence/verdict-names.ts'
import { armOf, claimOf, pairedOf, scenarioOf } from './documents.ts'

const scenario = scenarioOf()
const paired = pairedOf()
const [fault] = scenario.faults

/** A comparison on live traffic that found the treatment no worse. */
const comparison: Judged = { ...paired, kind: 'comparison', faults: [] }
const soak: Judged = { ...scenario, kind: 'soak', faults: [] }

test('a run passes when each claim is proven, its faults acted and calls met the faults', () => {
  for (const run of [scenario, paired, comparison, soak])
    assert.deepEqual(judgementByClaims(run), { verdict: 'passed', reasons: [] }, run.kind)
})

test('a claim that only held makes a weak run, and a broken claim a failed run', () => {
  const withStatus = (...statuses: Judged['claims'][number]['status'][]) =>
    judgementByClaims({ ...scenario, claims: statuses.map((status) => claimOf({ status })) }).verdict
  assert.equal(withStatus('proven', 'held'), 'held (weak)')
  assert.equal(withStatus('proven', 'failed'), 'failed')
  // A broken claim is a result, whatever the others are.
  assert.equal(withStatus('failed', 'not_measured'), 'failed')
})

/** Runs that prove nothing, with the reason of each. */
const planted: readonly (readonly [string, Judged, Reason])[] = [
  ['a scenario hit no call', { ...scenario, faults: [{ ...fault!, applied: 0 }] }, 'no_effective_fault'],
  ['a scenario hit four calls', { ...scenario, faults: [{ ...fault!, applied: 4 }] }, 'no_effective_fault'],
  [
    'one of two faults never hit',
    { ...scenario, faults: [fault!, { ...fault!, name: 'b', applied: 0 }] },
    'no_effective_fault',
  ],
  ['a scenario injected nothing', { ...scenario, faults: [] }, 'no_effective_fault'],
  [
    'a process was never killed',
    { ...scenario, faults: [{ ...fault!, type: 'proc.kill', applied: 0 }] },
    'no_effective_fault',
  ],
  [
    'a paired comparison has the same set twice',
    { ...paired, arms: [armOf('control', 'default'), armOf('treatment', 'default')] },
    'no_effective_fault',
  ],
  [
    'a comparison has the same set twice',
    { ...comparison, arms: [armOf('control', 'default'), armOf('treatment', 'default')] },
    'no_effective_fault',
  ],
  [
    'the plan of a paired comparison hit nothing',
    { ...paired, faults: [{ ...fault!, applied: 0 }] },
    'no_effective_fault',
  ],
  ['a scenario made 29 calls', { ...scenario, arms: [armOf('treatment', 'default', 29)] }, 'below_floor'],
  ['a scenario counted no arm', { ...scenario, arms: [] }, 'below_floor'],
  [
    'an arm of a comparison has few calls',
    { ...comparison, arms: [armOf('control', 'default'), armOf('treatment', 'cautious', 10)] },
    'below_floor',
  ],
  ['twelve pairs were played', { ...paired, claims: [claimOf({ n: 12 })] }, 'below_floor'],
  ['twenty units were compared', { ...comparison, claims: [claimOf({ n: 20 })] }, 'below_floor'],
  ['a scenario asserts nothing', { ...scenario, claims: [] }, 'undecided'],
  [
    'an assertion was not decided',
    { ...scenario, claims: [claimOf(), claimOf({ status: 'not_measured' })] },
    'undecided',
  ],
  [
    'a comparison is inconclusive',
    { ...comparison, claims: [claimOf({ status: 'not_measured' })] },
    'undecided',
  ],
  [
    'a paired comparison is inconclusive',
    { ...paired, claims: [claimOf({ status: 'not_measured' })] },
    'undecided',
  ],
  ['a scenario was stopped', { ...scenario, state: 'stopped' }, 'stopped'],
  ['a comparison was stopped by hand', { ...comparison, state: 'stopped' }, 'stopped'],
  ['the gateway was lost during a scenario', { ...scenario, state: 'failed' }, 'journal_gap'],
  ['a soak of three calls', { ...soak, arms: [armOf('treatment', 'default', 3)] }, 'below_floor'],
  ['the arms did not get their planned shares', { ...comparison, reasons: ['unsound'] }, 'unsound'],
  [
    'a failed scenario whose engine failed',
    { ...scenario, claims: [claimOf({ status: 'failed' })], reasons: ['engine_error'] },
    'engine_error',
  ],
]

for (const [name, run, reason] of planted)
  test(`a run proves nothing when ${name}`, () => {
    const { verdict, reasons } = judgementByClaims(run)
    assert.deepEqual([verdict, reasons], ['no evidence', [reason]])
  })
