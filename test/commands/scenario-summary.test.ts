import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertionsOf } from '../../src/commands/break/scenario/assertions.ts'
import type { Evidence, OwnCall } from '../../src/commands/break/scenario/evidence.ts'
import type { Scenario } from '../../src/commands/break/scenario/library.ts'
import { judgedRun } from '../../src/commands/break/scenario/result.ts'
import type { ScenarioRun } from '../../src/commands/break/scenario/run.ts'
import { type PlayedScenario, scenarioDocument } from '../../src/commands/break/scenario/summary.ts'
import { type HandIn, handIn, receivedRun } from '../../src/evidence/hand-in.ts'
import { counts } from './scenario-gateway.ts'

const scenario: Scenario = {
  name: 'broken',
  description: 'Half of the replies are errors.',
  assert: {
    calls: { succeed: { atLeast: 0.9 }, p95: { atMost: 1_000 } },
    fates: { escaped: 'none' },
    recovery: { steady: 5_000 },
  },
  hits: 'one_server',
  traffic: 20,
  duration: 10_000,
  faults: [{ name: 'errors', type: 'rpc.error', rate: 0.5 }],
}

/** Calls each 50 ms, during the faults of 10 s and for 5 s afterwards. */
const callsOf = (ending: (at: number) => string = () => 'result', ms = 20): OwnCall[] =>
  Array.from({ length: 300 }, (_, at) => ({
    ...{ server: 'search', tool: 'query', isHit: true },
    startedAt: at * 50,
    endedAt: at * 50 + ms,
    ending: ending(at),
  }))

const evidenceOf = (more: Partial<Evidence> = {}): Evidence => ({
  calls: callsOf(),
  others: [],
  breakers: [],
  fates: { masked: 40, delayed: 0, surfaced: 0, escaped: 0, notReached: 0, open: 0 },
  counted: undefined,
  unlisted: undefined,
  faultsEndedAt: 10_000,
  clearedAt: 10_000,
  endedAt: 15_000,
  ...more,
})

const hit = { ...counts, type: 'rpc.error', injected: 40, hits: 40, masked: 40, surfaced: 0, escaped: 0 }

interface Planted {
  readonly evidence?: Partial<Evidence>
  readonly run?: Partial<ScenarioRun>
  readonly hits?: Partial<typeof hit>
  readonly scenario?: Partial<Scenario>
  readonly isObserving?: boolean
  readonly isLost?: boolean
}

const facts = {
  ...{ environment: 'staging', config: 'c', policies: 'p' },
  linksOf: () => ({ era: 'modern', transport: 'http' }),
}

function documentOf({
  evidence,
  run: more,
  hits,
  scenario: changed,
  isObserving,
  isLost,
}: Planted = {}): HandIn {
  const own: Scenario = { ...scenario, ...changed }
  const assertions = assertionsOf(own.assert)
  const run: ScenarioRun = {
    faults: [{ name: 'errors', id: 'f1', counts: { ...hit, ...hits }, whenCleared: undefined }],
    flaws: [],
    evidence: evidenceOf(evidence),
    isStopped: false,
    engineErrors: 0,
    seed: 7,
    ...more,
  }
  const played: PlayedScenario = {
    scenario: own,
    assertions,
    run: isLost ? undefined : run,
    rate: isObserving ? undefined : 20,
    tools: isObserving ? [] : ['search/query'],
    toolGlob: undefined,
    result: {
      ...{ scenario: own.name, description: own.description, durationMs: 10_000, servers: ['search'] },
      ...{ startedAt: Date.UTC(2026), tookMs: 20_000.5, faults: run.faults },
      ...(isLost ? { checks: [], flaws: ['the gateway is lost'] } : judgedRun(run, assertions)),
    },
  }
  // As the file has it.
  return handIn.parse(JSON.parse(JSON.stringify(scenarioDocument(played, facts))))
}

function judgementOf(planted: Planted = {}) {
  const receiver = { gateway: null, bootId: null, by: 'x', now: Date.UTC(2027) }
  const { verdict, reasons } = receivedRun(documentOf(planted), receiver)
  return [verdict, ...reasons].join(', ')
}

test('a scenario passes when its assertions are proven, and its summary has the figures', () => {
  const document = documentOf()
  assert.equal(judgementOf(), 'passed', JSON.stringify(document.claims))
  assert.deepEqual(
    document.claims.map(({ text, status, n }) => [text, status, n]),
    [
      ['share of calls that succeed: at least 0.9', 'proven', 200],
      ['p95 of calls: at most 1s', 'proven', 200],
      ['faults escaped: none', 'proven', 200],
      ["only good answers from 5s after the faults' end on", 'proven', 200],
    ],
  )
  const [window] = document.windows
  assert.deepEqual([window?.arm, window?.stage, window?.calls, window?.failed], ['treatment', 0, 200, 0])
  assert.equal(
    window?.cells.reduce((sum, [, count]) => sum + count, 0),
    200,
  )
  assert.deepEqual(document.rto, { promisedMs: 5_000, measuredMs: 0 })
  const [fault] = document.faults
  assert.deepEqual([fault?.type, fault?.drawn, fault?.applied, fault?.masked], ['rpc.error', 40, 40, 40])
  assert.deepEqual(document.targets, [{ server: 'search', tool: 'query', effect: 'read_only' }])
  assert.deepEqual(document.load, { model: 'open', rate: 20, concurrency: null })
})

test('too few calls for a proof make a weak run', () => {
  // 100 calls without a failure prove at least 96.3 %.
  const few = { calls: callsOf().filter((_, at) => at % 2 === 0) }
  const assert95 = { assert: { calls: { succeed: { atLeast: 0.97 } } } }
  assert.equal(judgementOf({ evidence: few, scenario: assert95 }), 'held (weak)')
})

test('a broken assertion is a failure', () => {
  const broken = { calls: callsOf((at) => (at % 3 === 0 ? 'error -32000' : 'result')) }
  assert.equal(judgementOf({ evidence: broken, hits: { masked: 20, surfaced: 20 } }), 'failed')
})

/** Runs of scenarios that prove nothing, with the reasons of each. */
const planted: readonly (readonly [string, Planted, string])[] = [
  ['it hit four calls', { hits: { injected: 4, hits: 4, masked: 4 } }, 'no_effective_fault'],
  ['each injection came too late', { hits: { notReached: 40, masked: 0 } }, 'no_effective_fault'],
  ['it was stopped', { run: { isStopped: true, flaws: ['it was stopped early'] } }, 'stopped'],
  ['the engine failed', { run: { engineErrors: 2, flaws: ['the engine failed 2 times'] } }, 'engine_error'],
  [
    'a fault ended early',
    { run: { flaws: ['errors ended before the run did (chaos is killed)'] } },
    'unsound',
  ],
  ['the gateway was lost', { isLost: true }, 'no_effective_fault, below_floor, journal_gap'],
  ['it made 20 calls', { evidence: { calls: callsOf().slice(180, 200) } }, 'not_overlapping, below_floor'],
  [
    'all calls came in the last second',
    { evidence: { calls: callsOf().map((call) => ({ ...call, startedAt: 9_500, endedAt: 9_520 })) } },
    'not_overlapping',
  ],
  [
    'it observed the calls of others',
    { isObserving: true, evidence: { calls: undefined } },
    'below_floor, unsteady_before',
  ],
  [
    'its bounds cannot be broken',
    // Half of the calls are hit, so at least half succeed, and each call ends within a minute.
    { scenario: { assert: { calls: { succeed: { atLeast: 0.5 }, p95: { atMost: 60_000 } } } } },
    'loose_tolerance',
  ],
  [
    'an assertion was not decided',
    { scenario: { assert: { ...scenario.assert, calls: { from: 9_900, succeed: { atLeast: 0.9 } } } } },
    'undecided',
  ],
  [
    'it failed although its faults changed nothing',
    { scenario: { assert: { fates: { delayed: { atLeast: 1 } } } }, hits: { resent: 0, rejections: 0 } },
    'unsound',
  ],
]

for (const [name, run, reasons] of planted)
  test(`a scenario proves nothing when ${name}`, () =>
    assert.equal(judgementOf(run), `no evidence, ${reasons}`))

test('an open call counts as failed and slow for a proof', () => {
  // Five calls of 200 have no answer: at most 195 may have succeeded.
  const open = callsOf().map((call, at) =>
    at < 200 && at % 40 === 0 ? { ...call, endedAt: undefined } : call,
  )
  const { claims } = documentOf({ evidence: { calls: open } })
  const [share] = claims
  assert.ok(share!.low! < 0.96 && share!.high === 1, JSON.stringify(share))
})

test('names of tools that are too long for a summary are cut', () => {
  const document = documentOf({
    evidence: { breakers: [{ at: 1_000, open: [`search/${'x'.repeat(300)}`] }] },
  })
  assert.equal(document.transitions.at(-1)?.name.length, 200)
})
