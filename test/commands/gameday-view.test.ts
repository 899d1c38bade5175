import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  changeLines,
  clockTime,
  isGood,
  resultLines,
  type ShownGameDay,
  viewLines,
} from '../../src/commands/break/gameday/view.ts'
import { dayOf, NOW, planned, resultOf, runOf } from './gameday-day.ts'

const given = { values: { control: 'http://127.0.0.1:9' } }

const viewOf = (day: ShownGameDay, height = Infinity) =>
  viewLines(day, { given, now: NOW, width: 100, height })

const done = { ...planned, state: 'done' as const, runs: ['r1'], result: resultOf() }

test('the view has a line for each experiment, with its state, verdict, recovery against the promise and time left', () => {
  const run = runOf('drift')
  const steps = [
    { ...done, name: 'process-kill' },
    { ...planned, name: 'drift', state: 'running' as const, runs: ['r2'] },
  ]
  const [head, , first, second] = viewOf(dayOf({ steps, run }))
  assert.equal(head, 'first-look: running for 1:00, about 0:55 left, plus recoveries')
  assert.equal(first, 'process-kill  completed          passed   46s, promised 90s')
  assert.match(second ?? '', /^drift +stage 1 of \d: \d+% +promised 90s +0:55$/)
})

test('a late recovery and a missing one are told beside the promise, and reasons beside no evidence', () => {
  const steps = [
    { ...done, name: 'process-kill', result: resultOf({ recoveredMs: 95_000, verdict: 'failed' }) },
    {
      ...done,
      name: 'drift',
      result: resultOf({ recoveredMs: undefined, verdict: 'no evidence', reasons: ['below_floor'] }),
    },
  ]
  const lines = viewOf(dayOf({ steps }))
  assert.match(lines[2] ?? '', /failed +95s, promised 90s: late/)
  assert.match(lines[3] ?? '', /no evidence: below_floor +not recovered, promised 90s/)
})

test('the view shows the last two observations, and no more', () => {
  const observations = ['one', 'two', 'three'].map((text) => ({ at: NOW, by: 'bob', text, step: undefined }))
  const lines = viewOf(dayOf({ observations }))
  assert.deepEqual(
    lines.slice(-2).map((line) => line.replace(/^\S+ /, '')),
    ['bob: two', 'bob: three'],
  )
  assert.equal(
    lines.some((line) => line.includes('one')),
    false,
  )
})

test('a waiting run names the command that approves, with a key where only signatures approve', () => {
  const steps = [
    { ...planned, name: 'process-kill', state: 'waits for approval' as const, runs: ['r1'] },
    { ...planned, name: 'drift' },
  ]
  for (const [needsSignature, option] of [[false, ''] as const, [true, ' --key FILE'] as const]) {
    const run = runOf('process-kill', { state: 'pending_approval', phase: 'waiting' }, needsSignature)
    assert.equal(
      viewOf(dayOf({ steps, run })).at(-1),
      `breakwater experiment approve process-kill${option} --control http://127.0.0.1:9 lets process-kill begin`,
    )
  }
})

test('a paused GameDay says how to go on', () => {
  const lines = viewOf(dayOf({ state: 'paused', reason: 'ann paused it: lunch' }))
  assert.equal(lines[0], 'first-look: paused; ann paused it: lunch')
  assert.match(lines.at(-1) ?? '', /^breakwater gameday resume first-look \S+ \S+ continues; .* ends it$/)
})

test('in a low window the experiments around the current one stay, and the rest is counted', () => {
  const steps = Array.from({ length: 32 }, (_, at) =>
    at < 20 ? { ...done, name: `e${at}` } : { ...planned, name: `e${at}` },
  )
  const lines = viewOf(dayOf({ steps }), 8)
  assert.equal(lines.length, 8)
  assert.ok(lines.some((line) => line.startsWith('e20 ')))
  assert.equal(lines.at(-1), '… and 27 more')
})

test('text of people cannot break a line or colour the screen', () => {
  const observations = [{ at: NOW, by: 'bob', text: 'a\u001b[31m', step: undefined }]
  const changed = changeLines(dayOf({ observations }), dayOf())
  assert.match(changed[0] ?? '', /^\S+ bob: a\\u001b\[31m$/)
  assert.match(viewOf(dayOf({ observations })).at(-1) ?? '', /bob: a\\u001b\[31m$/)
})

test('each change is told once', () => {
  const begun = dayOf({ events: [{ at: NOW, what: 'begun', why: 'by ann' }] })
  assert.match(changeLines(begun, undefined).join(), /^\S+ begun: by ann$/)
  const later = dayOf({ events: begun.events, run: runOf('process-kill') })
  assert.match(changeLines(later, begun).join(), /^process-kill: stage 1 of /)
  assert.deepEqual(changeLines(later, later), [])
})

test('only a GameDay that is over with nothing but passed and held experiments is good', () => {
  const over = (verdict: 'passed' | 'held (weak)' | 'failed' | 'no evidence') =>
    dayOf({
      state: 'over',
      steps: [
        { ...done, name: 'process-kill' },
        { ...done, name: 'drift', result: resultOf({ verdict }) },
      ],
    })
  assert.deepEqual(
    (['passed', 'held (weak)', 'failed', 'no evidence'] as const).map((verdict) => isGood(over(verdict))),
    [true, true, false, false],
  )
  assert.equal(isGood({ ...over('passed'), state: 'stopped' }), false)
  const skipped = { ...planned, name: 'drift', state: 'skipped' as const, note: 'ann skipped it' }
  assert.equal(isGood(dayOf({ state: 'over', steps: [{ ...done, name: 'process-kill' }, skipped] })), false)
})

test('the result has counts, recoveries and actions, and no average', () => {
  const steps = [
    { ...done, name: 'process-kill' },
    { ...planned, name: 'drift', state: 'skipped' as const },
  ]
  const action = { number: 1, at: NOW, by: 'bob', what: 'alert sooner', owner: 'sre', due: '2027-01-31' }
  const day = dayOf({ state: 'over', steps, actions: [{ ...action, done: undefined }] })
  assert.deepEqual(resultLines(day), [
    'verdicts: 1 passed, 1 not run',
    'recovery: 1 of 1 within the promised time; the longest took 46s',
    'action 1 (open): alert sooner, sre, due 2027-01-31',
  ])
})

test('the result tells why an experiment failed or is no evidence', () => {
  const result = resultOf({ state: 'aborted', verdict: 'failed', why: 'p95 was 13s' })
  const steps = [
    { ...done, name: 'process-kill' },
    { ...done, name: 'drift', result },
  ]
  assert.equal(resultLines(dayOf({ state: 'over', steps })).at(-1), 'drift aborted: p95 was 13s')
})

test('times are minutes and seconds, and hours only from an hour on', () => {
  assert.deepEqual([0, 65_400, 3_725_000].map(clockTime), ['0:00', '1:05', '1:02:05'])
})
