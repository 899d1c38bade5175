import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runSummary } from '../../src/evidence/summary.ts'
import { summaryOfComparison } from '../../src/evidence/summary-of-comparison.ts'
import { comparable } from '../../src/evidence/trend.ts'
import type { EndedRun } from '../../src/experiments/experiments.ts'
import { experiment as schema } from '../../src/experiments/schema.ts'
import type { Verdict } from '../../src/experiments/statistics/verdict.ts'
import { summary } from './runs.ts'

const verdictOf = (more: Partial<Verdict> = {}): Verdict => ({
  ...{ result: 'better', ends: true, harm: false, sentence: 'cautious wins' },
  ...{ difference: 0.1, low: 0.05, high: 0.15, units: 400 },
  ...more,
})

const figures = {
  calls: 800,
  failed: 16,
  attempts: 850,
  underWay: 1,
  rejected: 4,
  cells: [[270, 799]] as const,
}

function ended(more: Partial<EndedRun> & { verdict?: Partial<Verdict>; settings?: object } = {}): EndedRun {
  const { verdict, settings, ...rest } = more
  const experiment = schema.parse({
    name: 'canary',
    arms: { steady: 'default', careful: 'cautious' },
    salt: 'a secret',
    ...settings,
  })
  const found = verdictOf(verdict)
  return {
    experiment,
    policies: { defaults: {}, overrides: [], sets: {} },
    startedAtWall: Date.UTC(2026),
    ranMs: 60_000,
    isStopped: false,
    judgement: {
      verdict: found,
      treatment: 'careful',
      units: { steady: 200, careful: 200 },
      verdicts: { careful: found },
    },
    arms: { steady: figures, careful: figures },
    faults: [],
    ...rest,
  }
}

const facts = {
  version: '0.1.0',
  gateway: null,
  bootId: 'boot',
  replicas: 1,
  host: { class: 'h', cpu: 'c', cores: 2, memoryBytes: 1, node: '20', container: false },
  era: 'modern',
  transport: 'http',
  environment: 'staging',
  config: 'c',
  targets: [{ server: 'search', tool: 'query', effect: 'read_only' }],
}

const summed = (more: Parameters<typeof ended>[0] = {}) => summaryOfComparison(ended(more), facts)

test('the summary of a comparison fits the format, and says who measured', () => {
  const found = summed()
  assert.deepEqual(runSummary.parse(JSON.parse(JSON.stringify(found))), found)
  assert.match(found.id, /^comparison-[a-z0-9]+-[0-9a-f]{8}$/)
  assert.deepEqual(
    [found.kind, found.verdict, found.measuredBy, found.state],
    ['comparison', 'passed', 'gateway', 'completed'],
  )
  assert.deepEqual(
    found.windows.map(({ arm, calls, failed, cells }) => [arm, calls, failed, cells]),
    [
      ['control', 800, 16, [[270, 799]]],
      ['treatment', 800, 16, [[270, 799]]],
    ],
  )
  assert.deepEqual(
    found.arms.map(({ name, set }) => [name, set]),
    [
      ['control', 'default'],
      ['treatment', 'cautious'],
    ],
  )
  assert.equal(found.claims[0]?.text, 'tasks_without_failure of cautious is not worse than of default')
  assert.ok(!JSON.stringify(found).includes('a secret'), 'a salt may be secret')
  assert.equal(found.plan, summed({ settings: { salt: 'other' } }).plan)
})

test('a comparison passes only with a decided and valid verdict', () => {
  const verdictAfter = (result: Verdict['result'], more: Partial<EndedRun> = {}) => {
    const { verdict, reasons } = summed({ verdict: { result }, ...more })
    return [verdict, ...reasons].join(', ')
  }
  assert.equal(verdictAfter('better'), 'passed')
  assert.equal(verdictAfter('no_difference_found'), 'passed')
  assert.equal(verdictAfter('worse'), 'failed')
  assert.equal(verdictAfter('inconclusive'), 'no evidence, undecided')
  assert.equal(verdictAfter('invalid'), 'no evidence, unsound')
  assert.equal(verdictAfter('better', { isStopped: true }), 'no evidence, stopped')
  const { judgement } = ended({ verdict: { result: 'invalid' } })
  const few = { judgement: { ...judgement, units: { steady: 200, careful: 12 } } }
  assert.equal(verdictAfter('invalid', few), 'no evidence, below_floor')
})

test('each treatment of a comparison has a claim, and one undecided treatment decides nothing', () => {
  const settings = { arms: { control: 'default', a: 'cautious', b: 'bold' } }
  const { judgement } = ended()
  const of = (a: Verdict['result'], b: Verdict['result']) =>
    summed({
      settings,
      arms: { control: figures, a: figures, b: figures },
      judgement: { ...judgement, verdicts: { a: verdictOf({ result: a }), b: verdictOf({ result: b }) } },
    })
  assert.equal(of('better', 'no_difference_found').verdict, 'passed')
  assert.equal(of('better', 'inconclusive').verdict, 'no evidence')
  assert.equal(of('better', 'worse').verdict, 'failed')
  assert.deepEqual(
    of('better', 'worse').windows.map(({ arm }) => arm),
    ['control', 'a', 'b'],
  )
})

test('a comparison without an interval has no numbers instead of infinite ones', () => {
  const [claim] = summed({
    verdict: { result: 'inconclusive', difference: NaN, low: -Infinity, high: Infinity },
  }).claims
  assert.deepEqual([claim?.value, claim?.low, claim?.high], [null, null, null])
})

test('faults in the arms of a comparison are counted by fate', () => {
  const fates = { masked: 3, delayed: 0, surfaced: 2, escaped: 0, not_reached: 1 }
  const [fault] = summed({ faults: [{ name: 'slow', type: 'conn.latency', fates }] }).faults
  assert.deepEqual([fault?.drawn, fault?.applied, fault?.notReached, fault?.surfaced], [6, 5, 1, 2])
})

test('a comparison and a guarded run form no series', () => {
  const { plan, shape, hashes, load, host, era, transport } = summed()
  const guarded = summary(1, { plan, shape, hashes, load, host, era, transport })
  assert.equal(comparable([guarded, summed()]).length, 2)
})
