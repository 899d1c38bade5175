import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pairedDocument, type PlayedPairs } from '../../../src/commands/compare/summary.ts'
import { type HandIn, handIn, receivedRun } from '../../../src/evidence/hand-in.ts'
import { compareTwins, type PairedReport, type TwinPair } from '../../../src/experiments/paired.ts'
import { readWorkload, shippedAt } from '../../../src/load/workload.ts'

const read = await readWorkload(shippedAt('orders.yaml'))
assert.ok(read.ok)
const { workload } = read

const twin = (outcome: 'succeeded' | 'failed') => ({
  ...{ outcome, calls: 2, right: outcome === 'succeeded' ? 2 : 1, attempts: 3, durations: [10, 20] },
})

/** Pairs of which so many succeed in one arm only, and the others in both. */
const pairsOf = (all: number, { controlOnly = 0, treatmentOnly = 0 } = {}): TwinPair[] =>
  Array.from({ length: all }, (_, at) => ({
    task: `orders-42-${at}`,
    kind: 'order',
    control: twin(at < treatmentOnly ? 'failed' : 'succeeded'),
    treatment: twin(at >= all - controlOnly ? 'failed' : 'succeeded'),
  }))

const armed = {
  ...{ name: 'flaky_reads', type: 'rpc.error', armed: true, config: {} },
  ...{ injected: 40, notApplicable: 0, notReached: 0, masked: 20, delayed: 0, surfaced: 20, escaped: 0 },
}

interface Planted extends Partial<PlayedPairs> {
  readonly twins?: readonly TwinPair[]
  readonly flaws?: readonly string[]
}

const servers = new Map([
  [
    'docs',
    new Map([
      ['search_docs', 'docs__search_docs'],
      ['read_doc', 'docs__read_doc'],
    ]),
  ],
  ['orders', new Map(['check_stock', 'quote_price', 'place_order'].map((tool) => [tool, `orders__${tool}`]))],
])
const tools = { servers, listed: new Set([...servers.values()].flatMap((names) => [...names.values()])) }

function documentOf({
  twins = pairsOf(100, { treatmentOnly: 25 }),
  flaws = [],
  ...more
}: Planted = {}): HandIn {
  const both = more.both ?? { control: 'default', treatment: 'cautious' }
  const report: PairedReport = {
    ...compareTwins(twins, { ...both, flaws }),
    ...{ workload: 'orders', seed: 42, startedAt: '2026-01-01T00:00:00.000Z', ranMs: 9_000.5, planned: 100 },
    faults: {
      ...{ names: ['flaky_reads'], fates: {}, examples: [] },
      first: { twice: 1, different: 0, once: 0 },
      later: { twice: 1, different: 0, once: 0 },
    },
    ...{ settings: [], flaws, warnings: [], twins },
  }
  const played: PlayedPairs = {
    ...{ report, workload, plan: undefined, tools, both, tasks: 100, seed: 42, concurrency: 8 },
    ...{ counted: [armed], isStopped: false, engineErrors: 0, startedAt: Date.UTC(2026) },
    ...more,
  }
  const facts = {
    ...{ environment: 'staging', config: 'c', policies: 'p' },
    linksOf: (names: readonly string[]) => ({ era: 'modern', transport: names.join('+') }),
  }
  // As the file has it.
  return handIn.parse(JSON.parse(JSON.stringify(pairedDocument(played, facts))))
}

function judgementOf(planted: Planted = {}) {
  const receiver = { gateway: null, bootId: null, by: 'x', now: Date.UTC(2027) }
  const { verdict, reasons } = receivedRun(documentOf(planted), receiver)
  return [verdict, ...reasons].join(', ')
}

test('a paired comparison that the treatment wins passes, and its summary has the figures', () => {
  const document = documentOf()
  assert.equal(judgementOf(), 'passed')
  assert.equal(document.name, 'orders: cautious against default')
  assert.deepEqual(
    document.arms.map(({ name, set, calls, good, attempts }) => [name, set, calls, good, attempts]),
    [
      ['control', 'default', 200, 175, 300],
      ['treatment', 'cautious', 200, 200, 300],
    ],
  )
  const [claim] = document.claims
  assert.equal(claim?.text, 'task_success of cautious is not worse than of default')
  assert.deepEqual([claim.n, claim.value], [100, 0.25])
  assert.ok(claim.low! > 0 && claim.high! < 1)
  assert.deepEqual(
    document.windows.map(({ arm, failed, cells }) => [arm, failed, cells.map(([, count]) => count)]),
    [
      ['control', 25, [100, 100]],
      ['treatment', 0, [100, 100]],
    ],
  )
  assert.equal(document.transport, 'docs+orders')
  assert.ok(document.targets.some(({ server, tool }) => server === 'orders' && tool === 'place_order'))
})

test('a treatment that loses is a failure, and an equal treatment passes with enough pairs', () => {
  assert.equal(judgementOf({ twins: pairsOf(100, { controlOnly: 20 }) }), 'failed')
  assert.equal(judgementOf({ twins: pairsOf(300) }), 'passed')
})

/** Comparisons that prove nothing, with the reasons of each. */
const planted: readonly (readonly [string, Planted, string])[] = [
  ['few pairs find no difference', { twins: pairsOf(40) }, 'undecided'],
  ['twelve pairs were played', { twins: pairsOf(12, { treatmentOnly: 12 }) }, 'below_floor'],
  ['no pair was played', { twins: [] }, 'below_floor'],
  [
    'a set was compared with itself',
    { both: { control: 'default', treatment: 'default' } },
    'no_effective_fault',
  ],
  [
    'its faults hit nothing',
    { counted: [{ ...armed, injected: 0, masked: 0, surfaced: 0 }] },
    'no_effective_fault',
  ],
  ['it was stopped', { isStopped: true, flaws: ['it was stopped after 50 of 100 pairs'] }, 'stopped'],
  ['the fault engine failed', { engineErrors: 1, flaws: ['the fault engine failed 1 time'] }, 'engine_error'],
  ['twins met other faults', { flaws: ['3 first attempts met other faults than their twins'] }, 'unsound'],
]

for (const [name, run, reasons] of planted)
  test(`a paired comparison proves nothing when ${name}`, () =>
    assert.equal(judgementOf(run), `no evidence, ${reasons}`))
