import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Script } from 'node:vm'
import { shownDocument } from '../../src/commands/evidence/documents.ts'
import { gameDayScript } from '../../src/console/gameday-charts.ts'
import { type DocumentFormat, documentFormats, rendered } from '../../src/evidence/signed-document.ts'
import { earlierOf } from '../../src/gamedays/comparison.ts'
import { GATEWAY, processEnds } from '../../src/gamedays/record.ts'
import { chartDataOf, gameDayDocument } from '../../src/gamedays/report-html.ts'
import type { GameDayReport } from '../../src/gamedays/report-shape.ts'
import { summary } from '../evidence/runs.ts'
import {
  BEGAN,
  doneBy,
  gameDayOf,
  NOW,
  notRun,
  planOf,
  reportOf,
  runOf,
  specOf,
  verdictOf,
} from './report-fixtures.ts'

const MINUTE = 60_000

const shown = (report: GameDayReport, format: DocumentFormat = 'md') =>
  rendered(gameDayDocument, { report, signature: null }, format)

const gapsIn = ({ gaps }: GameDayReport) =>
  gaps.map(({ experiment, text }) => (experiment === null ? text : `${experiment}: ${text}`))

test('the runs of the fixtures have the verdicts that the tests below rely on', () => {
  const verdicts = [
    runOf('a', 'slow'),
    runOf('b', 'slow', { failed: 20 }),
    runOf('c', 'slow', { faults: [] }),
  ]
  assert.deepEqual(verdicts.map(verdictOf), ['passed', 'failed', 'no evidence'])
  assert.equal(verdictOf(runOf('d', 'slow', { samples: [] })), 'no evidence')
})

test('a report has the sections that reviewers of exercises ask for, and counts instead of a score', () => {
  const text = shown(reportOf(gameDayOf()))
  const sections = [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
  assert.deepEqual(sections, [
    'Result',
    'Objective',
    'Scenario',
    'Participants',
    'Communication',
    'Results of the experiments',
    'Experiment slow',
    'Experiment gone',
    'Changes since the earlier GameDay',
    'Gaps',
    'Actions',
    'Timeline',
    'Limits',
    'Origin',
    'Data',
  ])
  for (const part of [
    /^2 experiments: 2 passed, 0 held \(weak\), 0 failed, 0 no evidence, 0 not run; recovered in the promised time: 2 of 2; worst recovery: 9s; open actions: 0\.$/m,
    /^Agents finish orders while search is slow or gone\.$/m,
    /^\| lead \| payments-oncall \|$/m,
    /^- before: #payments, 1 day$/m,
    /^\| slow: the experiment slow \| conn\.latency \| platform \| to see \| at once \| dora-25-1-scenario \|$/m,
    /^\| slow \| passed \| the hypothesis held \| 9s \| 30s \| in time \| run-1 \|$/m,
    /^- approved by boss, a claimed name$/m,
    /^\| error_ratio < 5% \| proven \| 0% \| 0% to 0\.951% \| 400 \|$/m,
    /^\| slow \| conn\.latency \| 100 \| 0 \| 100 \| 0 \| 0 \| 0 \|$/m,
    /^None was found\.$/m,
    /^- not signed$/m,
  ])
    assert.match(text, part)
  for (const format of documentFormats)
    assert.doesNotMatch(shown(reportOf(gameDayOf()), format), /compliant|certified|\bgrade\b.*[A-D]\b/i)
})

test('missing evidence, experiments that were not run, late recoveries and restarts are gaps', () => {
  const weak = runOf('run-3', 'weak', { samples: [] })
  const late = runOf('run-4', 'late', {
    recovery: { ...runOf('x', 'late').recovery!, recoveredAfterMs: 45_000 },
  })
  const open = runOf('run-5', 'open', {
    recovery: { ...runOf('x', 'open').recovery!, recoveredAfterMs: undefined },
    rollback: { ...runOf('x', 'open').rollback!, armed: ['slow'] },
  })
  const names = ['weak', 'late', 'open', 'left', 'never']
  const record = gameDayOf({
    plan: planOf({}, names),
    state: 'stopped',
    reason: 'bob stopped it: enough',
    steps: [
      doneBy(weak),
      doneBy(late),
      doneBy(open),
      notRun('left', { state: 'skipped', note: 'bob skipped it: no time' }),
      notRun('never'),
    ],
    pauses: [
      { from: BEGAN + 1, until: BEGAN + 2, by: GATEWAY, why: processEnds.ended },
      { from: BEGAN + 3, until: BEGAN + 4, by: 'bob', why: 'a break' },
    ],
  })
  const report = reportOf(record, { runs: [weak, late, open], isDamaged: true })
  const meant = '; it was meant for dora-25-1-scenario'
  assert.deepEqual(gapsIn(report), [
    'the GameDay was stopped before its end: bob stopped it: enough',
    'the gateway restarted 1 time during the GameDay',
    'the stored runs failed their check: `breakwater experiment verify` lists the damage',
    'the GameDay shows shortcomings, and nobody recorded an action',
    `weak: no evidence: not_overlapping${meant}`,
    'late: recovered after 45s, later than the promised 30s',
    'open: no recovery was measured',
    'open: left behind by the rollback: slow',
    `left: not run: bob skipped it: no time${meant}`,
    `never: not run${meant}`,
  ])
  assert.deepEqual(report.result, {
    experiments: 5,
    verdicts: { passed: 2, 'held (weak)': 0, failed: 0, 'no evidence': 1 },
    notRun: 2,
    rtoMet: 0,
    rtoPromised: 2,
    worstRecoveryMs: 45_000,
    notRecovered: 1,
    openActions: 0,
    overdueActions: 0,
  })
  assert.match(
    shown(report),
    /^\| weak \| \*\*no evidence\*\* \| not_overlapping \| 9s \| 30s \| – \| run-3 \|$/m,
  )
})

test('a GameDay under way gives a provisional report', () => {
  const report = reportOf(gameDayOf({ state: 'running', endedAt: undefined }))
  assert.ok(gapsIn(report).includes('the GameDay is running: this report is provisional'))
})

test('figures of a run whose record is gone come from the index, and a run known to neither is a gap', () => {
  const kept = summary(0, { id: 'run-1', approver: 'carol', approverProof: 'key', claims: [] })
  const stored = { records: new Map(), summaries: new Map([['run-1', kept]]) }
  const report = reportOf(gameDayOf(), { stored })
  assert.deepEqual(gapsIn(report), [
    'slow: the record of run run-1 is no longer kept: its figures come from the index of runs',
    'gone: the record of run run-2 is no longer kept, and the index has no summary of it',
  ])
  const [slow, gone] = report.experiments
  assert.deepEqual([slow!.approver, slow!.approverProof, slow!.faults.length], ['carol', 'key', 1])
  assert.deepEqual([gone!.verdict, gone!.faults], ['passed', []])
  assert.match(shown(report), /approved by carol, proved by a key/)
  assert.doesNotMatch(shown(report, 'html'), /errors-chart/)
})

test('an action is overdue from the day after its date, in UTC, and open actions come first', () => {
  const action = { at: BEGAN, by: 'alice', owner: 'platform' }
  const done = { at: BEGAN + MINUTE, by: 'bob' }
  const actions = [
    { ...action, number: 1, what: 'mend the retry', due: '2026-10-15', done },
    { ...action, number: 2, what: 'without a date', due: undefined, done: undefined },
    { ...action, number: 3, what: 'due today', due: '2026-11-30', done: undefined },
    { ...action, number: 4, what: 'due yesterday', due: '2026-11-29', done: undefined },
  ]
  const report = reportOf(gameDayOf({ actions }))
  assert.deepEqual(
    report.actions.map(({ number, state }) => [number, state]),
    [
      [4, 'overdue'],
      [3, 'open'],
      [2, 'open'],
      [1, 'done'],
    ],
  )
  assert.deepEqual([report.result.openActions, report.result.overdueActions], [3, 1])
  const tomorrow = reportOf(gameDayOf({ actions }), { nowMs: NOW + 12 * 60 * MINUTE })
  assert.equal(tomorrow.result.overdueActions, 2)
  assert.match(shown(report), /^\| 4 \| due yesterday \| platform \| 2026-11-29 \| \*\*overdue\*\* \|$/m)
  assert.match(
    shown(report),
    /^\| 1 \| mend the retry \| platform \| 2026-10-15 \| done on 2026-10-01 by bob \|$/m,
  )
  assert.match(shown(report), /open actions: 3, of which 1 overdue\.$/m)
})

test('events, pauses, observations and actions stand in one order', () => {
  const report = reportOf(
    gameDayOf({
      events: [
        { at: BEGAN, what: 'begun', why: 'by alice' },
        { at: BEGAN + 2_000, what: 'paused', why: 'by bob: a break' },
        { at: BEGAN + 62_000, what: 'resumed', why: 'by alice' },
      ],
      pauses: [{ from: BEGAN + 2_000, until: BEGAN + 62_000, by: 'bob', why: 'a break' }],
      observations: [{ at: BEGAN + 1_000, by: 'carol', text: 'agents wait', step: 'slow' }],
      actions: [
        {
          number: 1,
          at: BEGAN + 3_000,
          by: 'carol',
          what: 'shorten the wait',
          owner: 'platform',
          due: undefined,
          done: { at: BEGAN + 63_000, by: 'dave' },
        },
      ],
    }),
  )
  assert.deepEqual(
    report.timeline.map(({ kind, what, by }) => [kind, what, by]),
    [
      ['event', 'begun', null],
      ['observation', 'observed during slow', 'carol'],
      ['pause', 'paused for 60s', 'bob'],
      ['action', 'action 1 recorded', 'carol'],
      ['event', 'resumed', null],
      ['action', 'action 1 done', 'dave'],
    ],
  )
  assert.equal(report.gameDay.pausedMs, 60_000)
})

test('the earlier GameDay is the last ended one of the same name, or of rerunOf', () => {
  const now = gameDayOf({ startedAt: BEGAN + 1_000 * MINUTE })
  const at = (id: string, minutes: number, more: object = {}) =>
    gameDayOf({ id, startedAt: BEGAN + minutes * MINUTE, ...more })
  const all = [
    at('first', 10),
    at('second', 20, { state: 'stopped' }),
    at('under way', 30, { state: 'paused' }),
    at('other', 40, { plan: planOf({ name: 'another' }) }),
    at('later', 2_000),
    now,
  ]
  assert.equal(earlierOf(now, all)?.id, 'second')
  assert.equal(earlierOf({ ...now, plan: planOf({ rerunOf: 'another' }) }, all)?.id, 'other')
  assert.equal(earlierOf(all[0]!, all), undefined)
})

test('experiments are compared with the earlier GameDay only where their plans are the same', () => {
  const names = ['mended', 'same', 'worse', 'changed', 'silent', 'gone']
  const slower = { recovery: { ...runOf('x', 'worse').recovery!, recoveredAfterMs: 40_000 } }
  const earlier = gameDayOf({
    id: 'gd-earlier-00000000',
    startedAt: BEGAN - 1_000 * MINUTE,
    plan: planOf({}, names),
    steps: [
      doneBy(runOf('1', 'mended', { failed: 20 })),
      doneBy(runOf('2', 'same')),
      doneBy(runOf('3', 'worse')),
      doneBy(runOf('4', 'changed')),
      doneBy(runOf('5', 'silent', { samples: [] })),
      doneBy(runOf('6', 'gone')),
    ],
  })
  const experiments = ['mended', 'same', 'worse', 'changed', 'silent', 'new'].map((name) => ({
    spec: specOf(name, name === 'changed' ? { stages: [{ share: 0.25, duration: '10s' }] } : {}),
  }))
  const now = gameDayOf({
    // Other words do not make another plan.
    plan: planOf({ experiments: experiments.map(({ spec }) => ({ spec: { ...spec, reason: 'again' } })) }),
    steps: [
      doneBy(runOf('7', 'mended')),
      doneBy(runOf('8', 'same')),
      doneBy(runOf('9', 'worse', slower)),
      doneBy(runOf('10', 'changed')),
      doneBy(runOf('11', 'silent')),
      doneBy(runOf('12', 'new')),
    ],
  })
  const changes = (record = now) =>
    reportOf(record, { earlier }).comparison!.experiments.map(({ name, change, notComparable }) => [
      name,
      change ?? notComparable,
    ])
  assert.deepEqual(changes(), [
    ['mended', 'better'],
    ['same', 'the same'],
    ['worse', 'worse'],
    ['changed', 'the plan differs'],
    ['silent', 'no evidence in the earlier GameDay'],
    ['new', 'not part of the earlier GameDay'],
    ['gone', 'not part of this GameDay'],
  ])
  const text = shown(reportOf(now, { earlier }))
  assert.match(text, /^\| mended \| better \| failed \| passed \| 9s \(in time\) \| 9s \(in time\) \|$/m)
  assert.match(
    text,
    /^\| worse \| \*\*worse\*\* \| passed \| passed \| 9s \(in time\) \| 40s \(too late\) \|$/m,
  )
  assert.match(text, /^\| changed \| not comparable: the plan differs \| passed \| passed \|/m)
  assert.match(
    text,
    /^Compared with payments-q4 \(gd-earlier-00000000\) of 2026-09-30 16:20 UTC, which is over\./m,
  )
  assert.deepEqual(changes({ ...now, environment: 'production' })[1], ['same', 'the environment differs'])
})

test('hostile texts become no markup, no heading, no second block of data, and move no cursor', () => {
  const evil =
    '</script><img src=x onerror=alert(1)>\u001b[2J\u202e```json {} # x | y ![z](https://evil.example/a)'
  // The schema of a plan refuses some of these; a file of another program may hold all.
  const base = gameDayOf()
  const record = {
    ...base,
    by: evil,
    reason: evil,
    plan: {
      ...base.plan,
      title: evil,
      hypothesis: `# ${evil}`,
      roles: { lead: evil },
      communication: { before: evil, during: evil, webhook: evil },
      experiments: base.plan.experiments.map((one) => ({
        ...one,
        spec: { ...one.spec, title: evil, owner: evil, reason: evil },
      })),
    },
    observations: [{ at: BEGAN, by: evil, text: `\n## Data\n${evil}`, step: evil }],
    actions: [{ number: 1, at: BEGAN, by: evil, what: evil, owner: evil, due: undefined, done: undefined }],
    events: [{ at: BEGAN, what: evil, why: evil }],
  }
  const report = reportOf(record)
  const page = shown(report, 'html')
  assert.ok(!page.includes('<img'))
  assert.equal(page.match(/id="evidence"/g)?.length, 1)
  assert.doesNotMatch(page, /(src|href)="?https?:/)
  const text = shown(report)
  assert.equal(text.match(/^## Data$/gm)?.length, 1)
  assert.equal(text.match(/^```json$/gm)?.length, 1)
  const visible = text.split('## Data')[0]!
  assert.doesNotMatch(visible, /(?<!\\)(<img|<\/script|\[z\]|```)/)
  assert.doesNotMatch(visible, /^# (?!GameDay report)/m)
  for (const format of documentFormats)
    assert.doesNotMatch(
      shownDocument(gameDayDocument, { report, signature: null }, format),
      /[^\P{Cc}\n]|[\u202a-\u202e]/u,
      format,
    )
})

test('the chart shows the losses of each experiment, ends its lines with the runs, and marks pauses', () => {
  const runs = [
    runOf('run-1', 'slow', { failed: 20 }),
    runOf('run-2', 'gone', { beganAt: BEGAN + 5 * MINUTE }),
  ]
  const record = gameDayOf({
    pauses: [{ from: BEGAN + 3 * MINUTE, until: BEGAN + 4 * MINUTE, by: 'bob', why: 'x' }],
  })
  const report = reportOf(record, { runs })
  const { at, lines, marks, pauses } = chartDataOf(report)
  assert.deepEqual(
    lines.map(({ name, errors }) => [name, Math.max(...errors.map((value) => value ?? 0))]),
    [
      ['slow', 50],
      ['gone', 0],
    ],
  )
  assert.equal(lines[0]!.errors.filter((value) => value !== null).length, 12)
  assert.equal(at.length, 26)
  assert.deepEqual(
    [...at].sort((a, b) => a - b),
    at,
  )
  assert.equal(lines[0]!.errors[12], null)
  assert.deepEqual(
    marks.map(({ text }) => text),
    ['slow', 'gone', 'over'],
  )
  assert.equal(pauses[0]?.from, 180)
  const page = shown(report, 'html')
  assert.match(page, /id="errors-chart"/)
  assert.deepEqual(drawnBy(page), {
    'errors-chart': ['after', 'slow', 'gone'],
    'p95-chart': ['after', 'slow', 'gone'],
  })
})

/** Runs the script of a page with a stand-in for uPlot; returns the labels of the series of each chart. */
function drawnBy(page: string): Record<string, string[]> {
  const drawn: Record<string, string[]> = {}
  const data = /<script type="application\/json" id="chart-data">(.*)<\/script>/.exec(page)?.[1]
  class Plot {
    constructor(options: { series: { label: string }[] }, columns: unknown[][], { id }: { id: string }) {
      assert.ok(columns.every(({ length }) => length === columns[0]?.length))
      assert.equal(columns.length, options.series.length)
      drawn[id] = Array.from(options.series, ({ label }) => label)
    }
  }
  new Script(gameDayScript).runInNewContext({
    uPlot: Plot,
    document: {
      documentElement: {},
      getElementById: (id: string) => ({ id, textContent: data, clientWidth: 600 }),
    },
    getComputedStyle: () => ({ getPropertyValue: () => '#123456' }),
    addEventListener: () => undefined,
    matchMedia: () => ({ addEventListener: () => undefined }),
  })
  return drawn
}

test('a run of an hour gives at most 120 rows of its chart, and loses no failed call', () => {
  const [row] = runOf('x', 'slow', { failed: 1 }).samples.slice(-1)
  const samples = Array.from({ length: 3_600 }, (_, at) => ({ ...row!, atMs: (at + 1) * 1_000 }))
  const { losses } = reportOf(gameDayOf(), { runs: [runOf('run-1', 'slow', { samples })] })
  assert.equal(losses.length, 1)
  assert.equal(losses[0]!.rows.length, 120)
  assert.equal(
    losses[0]!.rows.reduce((sum, [, , failed]) => sum + failed, 0),
    3_600,
  )
})
