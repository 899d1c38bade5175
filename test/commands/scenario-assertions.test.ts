import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertionsSchema } from '../../src/commands/break/scenario/assertions-schema.ts'
import { type Assertion, assertionsOf } from '../../src/commands/break/scenario/assertions.ts'
import type { Evidence, OwnCall } from '../../src/commands/break/scenario/evidence.ts'

const good = { ending: 'result', tookMs: 10 }
const rejected = { ending: 'BW_BREAKER_OPEN', tookMs: 1 }

/** A call at a server, hit by a fault or not, with its start time. */
function call(
  startedAt: number,
  { ending, tookMs = 10, server = 'search', tool = 'find' }: Partial<OwnCall> & { tookMs?: number },
): OwnCall {
  const isOpen = ending === undefined
  return {
    server,
    tool,
    isHit: server === 'search',
    startedAt,
    endedAt: isOpen ? undefined : startedAt + tookMs,
    ending: ending ?? 'given up at the end',
  }
}

/** `count` calls, ten a second, from a time on. */
const calls = (count: number, from: number, how: Parameters<typeof call>[1]) =>
  Array.from({ length: count }, (_, index) => call(from + index * 100, how))

/** A run whose faults lasted for ten seconds, without other events. */
function evidence(seen: Partial<Evidence> = {}): Evidence {
  return {
    calls: [
      ...calls(100, 0, good),
      ...calls(20, 10_000, good),
      ...calls(20, 0, { ...good, server: 'other' }),
    ],
    others: [],
    breakers: [
      { at: 1_000, open: [] },
      { at: 10_000, open: [] },
    ],
    fates: { masked: 0, delayed: 0, surfaced: 0, escaped: 0, notReached: 0, open: 0 },
    counted: { calls: 100, attempts: 100, retries: 0, rejections: {}, verdicts: {} },
    unlisted: [],
    faultsEndedAt: 10_000,
    clearedAt: 10_000,
    endedAt: 20_000,
    ...seen,
  }
}

function read(written: object): Assertion[] {
  return assertionsOf(assertionsSchema.parse(written))
}

/** Five calls fail, the rest is rejected until three seconds after the faults. */
const outage = evidence({
  calls: [
    ...calls(5, 0, { ending: 'BW_UPSTREAM_STATUS' }),
    ...calls(125, 500, rejected),
    ...calls(20, 13_000, good),
  ],
  breakers: [
    { at: 1_000, open: ['search/find'] },
    { at: 10_000, open: ['search/find'] },
    { at: 12_000, open: ['search/find'] },
    { at: 13_000, open: [] },
  ],
  fates: { masked: 0, delayed: 0, surfaced: 5, escaped: 0, notReached: 0, open: 0 },
  counted: {
    calls: 150,
    attempts: 40,
    retries: 5,
    rejections: { breaker_open: 125 },
    verdicts: { schema_invalid: 3 },
  },
})

/** Each kind of assertion: its YAML, evidence that keeps the assertion, and evidence that breaks the assertion. */
const kinds: readonly (readonly [written: object, kept: Evidence, broken: Evidence])[] = [
  [{ breaker: { opens: { withinCalls: 5 } } }, outage, evidence()],
  [
    { breaker: { opens: { withinCalls: 5 } } },
    outage,
    evidence({ calls: [...calls(6, 0, { ending: 'BW_UPSTREAM_STATUS' }), ...calls(9, 600, rejected)] }),
  ],
  [{ breaker: { opens: { within: '1s' } } }, outage, evidence()],
  [{ breaker: { opens: { within: '1s' } } }, outage, evidence({ calls: calls(9, 1_500, rejected) })],
  [{ breaker: { opens: { notBefore: '5s' } } }, evidence({ calls: calls(9, 6_000, rejected) }), outage],
  [{ breaker: { opens: { notBefore: '5s' } } }, evidence({ calls: calls(9, 6_000, rejected) }), evidence()],
  [{ breaker: { opens: 'never' } }, evidence(), outage],
  [{ breaker: { closes: { within: '3s' } } }, outage, evidence()],
  [
    { breaker: { closes: { within: '3s' } } },
    outage,
    evidence({
      breakers: [
        { at: 1_000, open: ['search/find'] },
        { at: 14_000, open: ['search/find'] },
      ],
    }),
  ],
  [{ breaker: { closes: { within: '3s' } } }, outage, { ...outage, faultsEndedAt: 9_000, clearedAt: 9_000 }],
  [{ calls: { succeed: { atLeast: 0.9 } } }, evidence(), outage],
  [{ calls: { succeed: { atMost: 0.1 } } }, outage, evidence()],
  [
    { calls: { p95: { atMost: '50ms' } } },
    evidence(),
    evidence({ calls: calls(20, 0, { ...good, tookMs: 60 }) }),
  ],
  [
    { calls: { p95: { atLeast: '50ms' } } },
    evidence({ calls: calls(20, 0, { ...good, tookMs: 60 }) }),
    evidence(),
  ],
  [
    { calls: { p95: { atMost: '2s' } } },
    evidence({ calls: [...calls(98, 0, good), ...calls(2, 0, {})] }),
    evidence({ calls: [...calls(50, 0, good), ...calls(9, 0, {})] }),
  ],
  [
    { calls: [{ to: '5s', succeed: { atLeast: 1 } }] },
    evidence({ calls: [...calls(50, 0, good), ...calls(50, 5_000, rejected)] }),
    evidence({ calls: [...calls(50, 0, rejected), ...calls(50, 5_000, good)] }),
  ],
  [
    { calls: [{ from: '5s', succeed: { atMost: 0 } }] },
    evidence({ calls: [...calls(50, 0, good), ...calls(50, 5_000, rejected)] }),
    evidence({ calls: [...calls(50, 0, rejected), ...calls(50, 5_000, good)] }),
  ],
  [
    { others: { succeed: { atLeast: 0.99 } } },
    evidence(),
    evidence({ calls: calls(20, 0, { ...rejected, server: 'other' }) }),
  ],
  [
    { others: { p95: { atMost: '1s' } } },
    evidence(),
    evidence({ calls: calls(20, 0, { ...good, tookMs: 1_500, server: 'other' }) }),
  ],
  [{ errors: { must: ['BW_UPSTREAM_STATUS'] } }, outage, evidence()],
  [{ errors: { never: ['BW_BREAKER_OPEN'] } }, evidence(), outage],
  [{ errors: { may: ['BW_BREAKER_OPEN'] } }, evidence(), outage],
  [{ errors: { must: ['BW_BREAKER_OPEN'], may: ['BW_UPSTREAM_STATUS'] } }, outage, evidence()],
  [{ errors: { may: ['rpc error'] } }, evidence({ calls: calls(9, 0, { ending: 'error -32603' }) }), outage],
  ...(['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'] as const).flatMap((fate) => {
    const key = fate === 'not_reached' ? 'notReached' : fate
    const some = evidence({ fates: { ...evidence().fates, [key]: 3 } })
    return [
      [{ fates: { [fate]: { atLeast: 3 } } }, some, evidence()],
      [{ fates: { [fate]: { atMost: 2 } } }, evidence(), some],
      [{ fates: { [fate]: 'none' } }, evidence(), some],
    ] as const
  }),
  [{ retries: { atLeast: 5 } }, outage, evidence()],
  [{ retries: { atMost: 4 } }, evidence(), outage],
  [{ rejections: { breaker_open: { atLeast: 100 } } }, outage, evidence()],
  [{ rejections: { breaker_open: 'none' } }, evidence(), outage],
  [{ attemptsPerCall: { atMost: 0.5 } }, outage, evidence()],
  [{ verdicts: { schema_invalid: { atLeast: 1 } } }, outage, evidence()],
  [{ verdicts: { schema_invalid: 'none' } }, evidence(), outage],
  [{ recovery: { firstGood: '4s' } }, outage, evidence({ calls: calls(100, 0, rejected) })],
  [{ recovery: { firstGood: '2s' } }, evidence(), outage],
  [{ recovery: { steady: '3s' } }, outage, evidence({ calls: calls(100, 0, good) })],
  [{ recovery: { steady: '2s' } }, evidence(), outage],
  [
    { recovery: { p95: { atMost: '1s' } } },
    outage,
    evidence({ calls: calls(20, 10_000, { ...good, tookMs: 2_000 }) }),
  ],
  [{ claims: ['tcsr >= 99%', 'error_ratio < 1%', 'p99 < 50ms', 'surfaced = 0'] }, evidence(), outage],
  [{ claims: ['retries > 4', 'attempts_per_call <= 0.5', 'p50 <= 1ms'] }, outage, evidence()],
  [{ lists: 'kept' }, evidence(), evidence({ unlisted: ['search__find'] })],
]

for (const [written, kept, broken] of kinds) {
  test(`${JSON.stringify(written)} passes and fails by the evidence`, () => {
    for (const { name, judge } of read(written))
      assert.equal(judge(kept).verdict, 'pass', `${name}: ${judge(kept).measured}`)
    assert.ok(
      read(written).some(({ judge }) => judge(broken).verdict === 'fail'),
      read(written)
        .map(({ name, judge }) => `${name}: ${judge(broken).measured}`)
        .join(),
    )
  })
}

test('an assertion that needs calls of the run is undecided without such calls, and never passes', () => {
  const nobody = evidence({ calls: undefined })
  const written = {
    breaker: { opens: { withinCalls: 5 } },
    calls: { succeed: { atLeast: 0.01 }, p95: { atMost: '1h' } },
    others: { succeed: { atLeast: 0.01 } },
    errors: { never: ['BW_INTERNAL'], may: ['BW_INTERNAL'] },
    recovery: { firstGood: '1h', steady: '1h' },
  }
  for (const { name, judge } of read(written)) assert.equal(judge(nobody).verdict, 'undecided', name)
})

test('an assertion about the gateway is decided without calls of the run', () => {
  const seen = { ...outage, calls: undefined }
  const written = {
    breaker: { opens: { within: '1s' }, closes: { within: '3s' } },
    fates: { surfaced: { atLeast: 5 } },
    rejections: { breaker_open: { atLeast: 1 } },
  }
  for (const { name, judge } of read(written)) assert.equal(judge(seen).verdict, 'pass', name)
})

test('a few calls, or none that ended, decide nothing', () => {
  const [share, p95] = read({ calls: { succeed: { atLeast: 0.01 }, p95: { atMost: '1h' } } })
  for (const few of [calls(4, 0, good), calls(50, 0, {})]) {
    assert.equal(share?.judge(evidence({ calls: few })).verdict, 'undecided')
    assert.equal(p95?.judge(evidence({ calls: few })).verdict, 'undecided')
  }
})

test('counts that could not be read decide nothing', () => {
  const blind = evidence({ counted: undefined, unlisted: undefined })
  const written = {
    retries: 'none',
    attemptsPerCall: { atMost: 9 },
    verdicts: { drift: 'none' },
    lists: 'kept',
    claims: ['retries = 0'],
  }
  for (const { name, judge } of read(written)) assert.equal(judge(blind).verdict, 'undecided', name)
})

test('without another server, an assertion about other servers is skipped', () => {
  const [only] = read({ others: { succeed: { atLeast: 0.99 } } })
  assert.equal(only?.judge(evidence({ calls: calls(100, 0, good) })).verdict, 'skipped')
})

test('without calls to the other servers, an assertion about other servers is undecided', () => {
  const [only] = read({ others: { succeed: { atLeast: 0.99 } } })
  const seen = evidence({ calls: calls(100, 0, good), others: ['other'] })
  assert.deepEqual(only?.judge(seen), {
    verdict: 'undecided',
    measured: 'not decided: none of other was called',
  })
})

test('calls still held when a fault is cleared leave a share undecided if they could change the verdict', () => {
  // Calls that are released after the faults, and succeed.
  const held = (count: number) => calls(count, 0, { ...good, tookMs: 60_000 })
  const failed = (count: number) => calls(count, 0, { ending: 'BW_BULKHEAD_FULL' })
  for (const [succeed, seen, verdict, measured] of [
    [{ atMost: 0 }, [...held(50), ...failed(50)], 'undecided', 'not decided: 0 to 0.5, 50 have not ended'],
    [{ atMost: 0.5 }, [...held(50), ...failed(50)], 'pass', '0 to 0.5, 50 have not ended'],
    [{ atLeast: 0.6 }, [...held(50), ...failed(50)], 'fail', '0 to 0.5, 50 have not ended'],
    [
      { atLeast: 0.2, atMost: 0.3 },
      [...held(50), ...failed(50)],
      'undecided',
      'not decided: 0 to 0.5, 50 have not ended',
    ],
    [
      { atLeast: 0.9 },
      [...held(90), ...calls(10, 0, good)],
      'undecided',
      'not decided: 0.111 to 1, 80 have not ended',
    ],
    [{ atLeast: 0.9 }, [...held(1), ...calls(99, 0, good)], 'pass', '0.99 to 1, 1 have not ended'],
  ] as const) {
    const [share] = read({ calls: { succeed } })
    assert.deepEqual(share?.judge(evidence({ calls: seen })), { verdict, measured })
  }
})

test('unfinished calls no older than good calls leave nothing undecided', () => {
  const [share] = read({ calls: { succeed: { atLeast: 0.9 } } })
  const slow = calls(20, 0, { ...good, tookMs: 4_000 })
  const seen = evidence({ calls: [...slow, ...calls(20, 7_000, {})] })
  assert.deepEqual(share?.judge(seen), { verdict: 'pass', measured: '1' })
})

test('at servers that are not hit, calls that have taken too long without an end are not good', () => {
  const [share] = read({ others: { succeed: { atLeast: 0.99 } } })
  const fine = calls(20, 0, { ...good, server: 'other' })
  const verdictOf = (hanging: readonly OwnCall[]) =>
    share?.judge(evidence({ calls: [...fine, ...hanging] })).verdict
  assert.equal(verdictOf(calls(20, 0, { server: 'other' })), 'fail')
  assert.equal(verdictOf([call(9_000, { server: 'other' })]), 'pass', 'the call began just before the end')
})

test('every assertion says its bound, and what was measured', () => {
  const lines = read({
    breaker: { opens: { withinCalls: 5 }, closes: { within: '5s' } },
    calls: { to: '9s', succeed: { atLeast: 0.5 }, p95: { atMost: '2s' } },
    fates: { escaped: 'none' },
    claims: ['tcsr > 99.5%', 'p95<1s'],
  }).map(({ name, judge }) => `${name}: ${judge(outage).measured}`)
  assert.deepEqual(lines, [
    'breaker opens within 5 calls of a tool: 5 (search/find)',
    "breakers are closed again within 5s of the faults' end: 3s",
    'share of calls that succeed (to 9s): at least 0.5: 0',
    'p95 of calls (to 9s): at most 2s: 10ms',
    'faults escaped: none: 0',
    'tcsr > 99.5%: 0%',
    'p95<1s: 1ms',
  ])
})
