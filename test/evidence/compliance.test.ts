import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type ComplianceMapping,
  complianceMapping,
  evidenceFor,
  type RequirementEvidence,
} from '../../src/evidence/compliance.ts'
import { evidenceDocument, reportOn } from '../../src/evidence/compliance-report.ts'
import { DAY_MS, parsePeriod, type Period } from '../../src/evidence/period.ts'
import { documentFormats, rendered } from '../../src/evidence/signed-document.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'
import { dayMs, faultOf, summaryOn } from './runs.ts'

/** A mapping as written in a file. */
const written = (requirement: object = {}, more: object = {}) => ({
  framework: 'own',
  title: 'Our rules',
  source: 'wiki, page 7',
  asOf: '2026-11-30',
  checkedBy: null,
  requirements: [
    {
      id: 'yearly',
      ref: 'Rule 1',
      text: 'Test each year.',
      every: '365d',
      supports: { kinds: ['guarded', 'gameday'], faults: ['conn.*'], verdict: ['passed', 'held', 'failed'] },
      limits: ['gateway path only'],
      ...requirement,
    },
  ],
  ...more,
})

const mappingOf = (requirement: object = {}, more: object = {}): ComplianceMapping =>
  complianceMapping.parse(written(requirement, more))

/** Long after all periods of the tests. */
const LATE = dayMs('2030-01-01')

function periodOf(text: string, nowMs = LATE): Period {
  const period = parsePeriod(text, nowMs)
  assert.ok(typeof period !== 'string', String(period))
  return period
}

function evidenceOf(
  runs: readonly RunSummary[],
  { period = periodOf('2026Q4'), requirement = {} }: { period?: Period; requirement?: object } = {},
): RequirementEvidence {
  const [found] = evidenceFor(mappingOf(requirement), runs, period)
  return found!
}

const idsOf = ({ runs }: RequirementEvidence) => runs.map(({ id }) => id)

test('a quarter, a year and days are periods of whole days of UTC', () => {
  const spanOf = (text: string) => {
    const { fromMs, toMs } = periodOf(text)
    return [new Date(fromMs).toISOString(), new Date(toMs).toISOString()]
  }
  assert.deepEqual(spanOf('2026Q4'), ['2026-10-01T00:00:00.000Z', '2027-01-01T00:00:00.000Z'])
  assert.deepEqual(spanOf('2024Q1'), ['2024-01-01T00:00:00.000Z', '2024-04-01T00:00:00.000Z'])
  assert.deepEqual(spanOf('2026'), ['2026-01-01T00:00:00.000Z', '2027-01-01T00:00:00.000Z'])
  assert.deepEqual(spanOf('2024-02-29..2024-02-29'), ['2024-02-29T00:00:00.000Z', '2024-03-01T00:00:00.000Z'])
})

test('a wrong period is refused in a sentence', () => {
  const forms =
    'expected a quarter such as 2026Q4, a year such as 2026, or days such as 2026-10-01..2026-12-31'
  const days = 'expected days such as 2026-10-01..2026-12-31'
  for (const [text, sentence] of [
    ['', `${forms}, not ""`],
    ['Q4', `${forms}, not "Q4"`],
    ['2026q4', `${forms}, not "2026q4"`],
    ['2026-Q4', `${forms}, not "2026-Q4"`],
    ['2026-11-30', `${forms}, not "2026-11-30"`],
    ['2026-01-01..2026-02-01..2026-03-01', `${forms}, not "2026-01-01..2026-02-01..2026-03-01"`],
    ['2026Q5', 'a year has the quarters Q1 to Q4, not "2026Q5"'],
    ['2026Q0', 'a year has the quarters Q1 to Q4, not "2026Q0"'],
    ['0026Q4', 'expected a year from 2000 to 9999, not 26'],
    ['1999', 'expected a year from 2000 to 9999, not 1999'],
    ['1999-01-01..2026-01-01', 'expected a year from 2000 to 9999, not 1999'],
    ['2026-11-31..2026-12-01', 'the calendar has no day 2026-11-31'],
    ['2026-02-01..2026-02-29', 'the calendar has no day 2026-02-29'],
    ['2026-10-01..', `${days}, not ""`],
    ['2026-10-1..2026-12-31', `${days}, not "2026-10-1"`],
    ['2026-12-31..2026-10-01', 'the period ends before it begins: 2026-10-01 is before 2026-12-31'],
    ['2030Q2', 'the period 2030Q2 has not begun: its first day is 2030-04-01'],
  ] as const)
    assert.equal(parsePeriod(text, LATE), sentence)
})

test('a run belongs to the period in which the run began', () => {
  const [from, to] = [dayMs('2026-10-01'), dayMs('2027-01-01')]
  const runs = [
    summaryOn('before', '2026-09-30', { at: from - 1 }),
    summaryOn('last', '2026-12-31', { at: to - 1 }),
    summaryOn('first', '2026-10-01', { at: from }),
    summaryOn('after', '2027-01-01', { at: to }),
  ]
  const found = evidenceOf(runs)
  assert.deepEqual(idsOf(found), ['first', 'last'])
  assert.deepEqual(found.last, {
    id: 'last',
    at: '2026-12-31T23:59:59.999Z',
    measuredBy: 'gateway',
  })
})

test('a failed run is evidence of testing, and a run without evidence is none', () => {
  const runs = [
    summaryOn('good', '2026-10-02'),
    summaryOn('weak', '2026-10-03', { verdict: 'held (weak)', reasons: ['below_floor'] }),
    summaryOn('bad', '2026-10-04', { verdict: 'failed' }),
    summaryOn('empty', '2026-10-05', { verdict: 'no evidence', reasons: ['not_overlapping'] }),
  ]
  const found = evidenceOf(runs)
  assert.deepEqual(idsOf(found), ['good', 'weak', 'bad'])
  assert.deepEqual(found.verdicts, { passed: 1, held: 1, failed: 1 })
  assert.deepEqual(found.others, [
    {
      id: 'empty',
      name: 'drill',
      at: '2026-10-05T12:00:00.000Z',
      reasons: ['not_overlapping'],
      why: 'no evidence',
    },
  ])
  assert.equal(found.last?.id, 'bad')
  assert.equal(found.gap, null)
})

test('evidence says how many of its runs clients handed in', () => {
  const client = summaryOn('client', '2026-10-03', { measuredBy: 'client' })
  const both = evidenceOf([summaryOn('own', '2026-10-02'), client])
  assert.deepEqual([both.runs.length, both.handedIn, both.last?.measuredBy], [2, 1, 'client'])
  assert.equal(evidenceOf([client]).handedIn, 1)
  assert.equal(evidenceOf([summaryOn('own', '2026-10-02')]).handedIn, 0)
})

test('a period without a supporting run is a gap, and the gap has a reason', () => {
  const empty = summaryOn('empty', '2026-10-05', { verdict: 'no evidence', reasons: ['no_effective_fault'] })
  assert.equal(evidenceOf([]).gap, 'no run')
  assert.equal(evidenceOf([summaryOn('soak', '2026-10-02', { kind: 'soak' })]).gap, 'no run')
  assert.equal(
    evidenceOf([summaryOn('other', '2026-10-02', { faults: [faultOf('rpc.error')] })]).gap,
    'no run',
  )
  assert.equal(evidenceOf([empty]).gap, 'only runs without evidence')
  assert.equal(evidenceOf([empty]).due.state, 'never tested')
  const strict = { supports: { kinds: ['guarded'], faults: ['*'], verdict: ['passed'] } }
  const failed = evidenceOf([empty, summaryOn('bad', '2026-10-06', { verdict: 'failed' })], {
    requirement: strict,
  })
  assert.equal(failed.gap, 'no supporting run')
  assert.deepEqual(
    failed.others.map(({ why }) => why),
    ['no evidence', 'other verdict'],
  )
})

test('a run whose named fault took no effect supports nothing', () => {
  const faults = [faultOf('conn.reset', 0), faultOf('rpc.error', 40)]
  const found = evidenceOf([summaryOn('run', '2026-10-02', { faults })])
  assert.equal(found.gap, 'no supporting run')
  assert.equal(found.others[0]?.why, 'no effect of a named fault')
  const both = [...faults, faultOf('conn.latency', 1)]
  assert.equal(evidenceOf([summaryOn('run', '2026-10-02', { faults: both })]).gap, null)
})

test('a requirement is in time on its last day, and overdue from the next day on', () => {
  const run = summaryOn('run', '2025-11-30')
  const dueAt = (nowMs: number) => evidenceOf([run], { period: periodOf('2026Q4', nowMs) }).due
  const lastDay = { state: 'in time', day: '2026-11-30' }
  const overdue = { state: 'overdue', day: '2026-12-01' }
  assert.deepEqual(dueAt(dayMs('2026-10-05')), lastDay)
  assert.deepEqual(dueAt(dayMs('2026-11-30')), lastDay)
  assert.deepEqual(dueAt(dayMs('2026-12-01') - 1), lastDay)
  assert.deepEqual(dueAt(dayMs('2026-12-01')), overdue)
  assert.deepEqual(dueAt(LATE), overdue)
  const late = summaryOn('run', '2025-11-30', { at: dayMs('2025-12-01') - 1 })
  const early = summaryOn('run', '2025-11-30', { at: dayMs('2025-11-30') })
  for (const one of [late, early])
    assert.deepEqual(evidenceOf([one], { period: periodOf('2026Q4', dayMs('2026-12-01')) }).due, overdue)
})

test('a past period is judged at its end, by runs up to its end', () => {
  const runs = [summaryOn('old', '2025-01-01'), summaryOn('new', '2026-02-01')]
  assert.deepEqual(evidenceOf(runs, { period: periodOf('2025Q4') }).due, {
    state: 'in time',
    day: '2026-01-01',
  })
  const january = periodOf('2026-01-01..2026-01-01')
  assert.deepEqual(evidenceOf(runs, { period: january }).due, { state: 'in time', day: '2026-01-01' })
  const nextDay = periodOf('2026-01-01..2026-01-02')
  assert.deepEqual(evidenceOf(runs, { period: nextDay }).due, { state: 'overdue', day: '2026-01-02' })
  assert.deepEqual(evidenceOf(runs, { period: nextDay }).last?.id, 'old')
})

test('a requirement without an interval has no due date', () => {
  assert.deepEqual(evidenceOf([], { requirement: { every: null } }).due, { state: 'no interval', day: null })
})

test('recovery times count only for runs that promised a time', () => {
  const rto = (promisedMs: number | null, measuredMs: number | null) => ({ rto: { promisedMs, measuredMs } })
  const runs = [
    summaryOn('a', '2026-10-01', rto(30_000, 30_000)),
    summaryOn('b', '2026-10-02', rto(30_000, 30_001)),
    summaryOn('c', '2026-10-03', rto(30_000, null)),
    summaryOn('d', '2026-10-04', rto(null, 5)),
    summaryOn('e', '2026-10-05', { ...rto(30_000, 1), verdict: 'no evidence', reasons: ['stopped'] }),
  ]
  assert.deepEqual(evidenceOf(runs).recovery, { promised: 3, met: 1, notMeasured: 1 })
})

test('a mapping that claims compliance, repeats an id, or accepts runs without evidence is refused', () => {
  const messages = (value: unknown) =>
    complianceMapping.safeParse(value).error?.issues.map(({ message }) => message)
  const claim = 'a mapping must not claim compliance: a run only may support a requirement'
  assert.deepEqual(messages(written({ text: 'We are Compliant.' })), [claim])
  assert.deepEqual(messages(written({ limits: ['certified gateways'] })), [claim])
  assert.deepEqual(messages(written({}, { title: 'Compliance achieved' })), [claim])
  const { requirements } = written()
  assert.deepEqual(messages(written({}, { requirements: [...requirements, ...requirements] })), [
    '"yearly" is used twice',
  ])
  const supports = { kinds: ['guarded'], faults: ['*'], verdict: ['no evidence'] }
  assert.equal(messages(written({ supports }))?.length, 1)
  assert.deepEqual(messages(written({}, { asOf: '2026-11-31' })), ['expected a date such as 2026-11-30'])
  for (const wrong of [{ every: '1h' }, { every: undefined }, { limits: [] }, { extra: 1 }])
    assert.equal(messages(written(wrong))?.length, 1, JSON.stringify(wrong))
})

const making = {
  period: periodOf('2026Q4', dayMs('2026-11-30')),
  nowMs: dayMs('2026-11-30'),
  version: '1.2.3',
  isDamaged: false,
}

test('a report names source, date, missing check, environments and limits in each format', () => {
  const runs = [
    summaryOn('one', '2026-10-02', { environment: 'staging' }),
    summaryOn('two', '2026-10-03', { environment: 'load-test' }),
    summaryOn('not-used', '2026-10-03', { environment: 'unseen', kind: 'soak' }),
  ]
  const report = reportOn(mappingOf(), runs, making)
  assert.deepEqual(report.environments, ['load-test', 'staging'])
  assert.deepEqual(
    report.runs.map(({ id }) => id),
    ['one', 'two'],
  )
  for (const format of documentFormats) {
    const text = rendered(evidenceDocument, { report, signature: null }, format)
    for (const said of [
      'evidence that may support',
      'Nobody has checked the mapping',
      'wiki, page 7',
      '2026-11-30',
      'the path of calls through the gateway',
      'load-test, staging',
      'A test in staging is no test in production.',
      'gateway path only',
      'The period is not over yet.',
    ])
      assert.ok(text.includes(said), `${format}: ${said}`)
    assert.ok(!text.includes('unseen'), format)
  }
  const checked = reportOn(mappingOf({}, { checkedBy: 'Ada' }), [], { ...making, period: periodOf('2026Q4') })
  const text = rendered(evidenceDocument, { report: checked, signature: null }, 'md')
  assert.ok(text.includes('Ada has checked the mapping'))
  assert.ok(!text.includes('Nobody has checked'))
  assert.ok(!text.includes('not over yet'))
})

test('HTML and Markdown escape names from runs and mappings', () => {
  const nasty = '</script><img src=x onerror=alert(1)>'
  const run = summaryOn('one', '2026-10-02', { name: nasty, environment: nasty, by: nasty })
  const report = reportOn(mappingOf({ ref: nasty, text: nasty }, { title: nasty }), [run], making)
  const html = rendered(evidenceDocument, { report, signature: null }, 'html')
  assert.ok(!html.includes('<img'))
  assert.ok(html.includes('&lt;img src=x'))
  assert.equal(html.match(/<\/script>/g)?.length, 1)
  const [shown = ''] = rendered(evidenceDocument, { report, signature: null }, 'md').split('## Data')
  assert.ok(shown.includes('\\<img'))
  assert.ok(!/(?<!\\)<img/.test(shown))
})

test('a report does not depend on the order of the runs', () => {
  const runs = Array.from({ length: 6 }, (_, at) =>
    summaryOn(`run-${at}`, '2026-10-02', { at: dayMs('2026-10-02') + Math.floor(at / 2) * DAY_MS }),
  )
  const report = reportOn(mappingOf(), runs, making)
  assert.deepEqual(reportOn(mappingOf(), [...runs].reverse(), making), report)
})

test('no text of a mapping claims a result, or stands for a test by attackers', () => {
  const problemOf = (requirement: object, more: object = {}) =>
    complianceMapping.safeParse(written(requirement, more)).error?.issues[0]?.message ?? 'accepted'
  for (const more of [{ framework: 'dora-compliant' }, { checkedBy: 'Acme: all systems are certified' }])
    assert.match(problemOf({}, more), /must not claim compliance/, JSON.stringify(more))
  assert.match(problemOf({ id: 'pci-compliant' }), /must not claim compliance/)
  for (const text of ['Penetration tests each year.', 'A pentest.', 'Red-team exercises.', 'TLPT (Art. 26)'])
    for (const field of ['text', 'ref'])
      assert.match(problemOf({ [field]: text }), /tests by attackers/, text)
  assert.equal(problemOf({ limits: ['A run is no penetration test.'] }), 'accepted')
})

test('a run of a time after the judgement is no test yet', () => {
  const period = periodOf('2026Q4', dayMs('2026-11-01'))
  const late = summaryOn('late', '2026-12-20')
  const { runs, due } = evidenceOf([late], { period })
  assert.deepEqual([runs.length, due.state], [0, 'never tested'])
  const mapping = mappingOf()
  assert.equal(reportOn(mapping, [late], { period, nowMs: dayMs('2026-11-01'), version: '1' }).runs.length, 0)
})
