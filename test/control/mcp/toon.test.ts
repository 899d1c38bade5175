import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { Tiktoken } from 'js-tiktoken/lite'
import o200k from 'js-tiktoken/ranks/o200k_base'
import { decode } from '@toon-format/toon'
import { RunHistory } from '../../../src/control/mcp/run-history.ts'
import {
  type Answer,
  type ControlTool,
  MAX_ANSWER_BYTES,
  bytesOf,
  type Operations,
  type PageArguments,
  tableAnswer,
  type ToolContext,
} from '../../../src/control/mcp/tool.ts'
import { toonOf, TOON_VERSION } from '../../../src/control/mcp/toon.ts'
import { tools } from '../../../src/control/mcp/tools/index.ts'
import { type RunRecord, noHits, type SampledFigures } from '../../../src/experiments/guarded/record.ts'
import { figuresOf } from '../../experiments/guarded/figures.ts'
import { recordOf, specOf } from '../../experiments/guarded/world.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { assertTells, joined, toonIn } from '../../support/toon.ts'

type Json = Record<string, unknown>

const root = join(import.meta.dirname, '../../../..')

/** Returns the next number in [0, 1) of a fixed sequence. */
let seed = 7
const next = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31
const whole = (most: number): number => Math.floor(next() * most)
const repeated = <Item>(count: number, item: (at: number) => Item): Item[] =>
  Array.from({ length: count }, (_, at) => item(at))

/** Middle of 2025-10, in milliseconds since the Unix epoch. */
const NOW = 1_760_550_000_000

function sampled(): SampledFigures {
  const calls = 20 + whole(30)
  return {
    calls,
    failed: whole(3),
    begun: calls + whole(3),
    retries: whole(4),
    rejections: next() < 0.05 ? { rate_limited: 1 + whole(3) } : {},
    p50: 10 + whole(2_000) / 100,
    p95: 40 + whole(40_000) / 100,
  }
}

/** A run with 120 samples: 20 s of baseline, stages of 40 s with 10 % and 25 % of the calls, and 20 s of recovery. */
const run: RunRecord = recordOf(specOf({ name: 'search-latency' }), {
  id: 'mgjar000-bc604481',
  actor: 'claude-sre',
  approver: 'ops-1',
  proof: { proved: 'key', keyId: 'k' },
  state: 'completed',
  phase: 'over',
  reason: 'all stages are over, and the steady state holds',
  requestedAt: NOW,
  beganAt: NOW + 4_210,
  endedAt: NOW + 124_377,
  stage: 1,
  baseline: figuresOf({ calls: 700, p95: 212.31 }),
  hypothesis: {
    before: [{ claim: 'error_ratio < 1%', found: '0.2%', holds: true }],
    after: [{ claim: 'error_ratio < 1%', found: '0.3%', holds: true }],
  },
  samples: repeated(120, (at) => {
    const row = { atMs: (at + 1) * 1_000 + whole(4), injected: 0, share: 0 }
    if (at < 20) return { ...row, phase: 'baseline', arms: { all: sampled() } }
    if (at >= 100) return { ...row, phase: 'recovery', arms: { all: sampled() } }
    const arms = { control: sampled(), treatment: sampled() }
    return { ...row, phase: 'stage', share: at < 60 ? 0.1 : 0.25, injected: whole(9), arms }
  }),
  stages: [0.1, 0.25].map((share, at) => ({
    share,
    beganAtMs: 20_003 + at * 40_000,
    endedAtMs: 60_002 + at * 40_000,
    control: figuresOf({ calls: 1_310, failed: 3, mean: 23.72391, p95: 211.42 }),
    treatment: figuresOf({ calls: 140 + whole(200), failed: 7, mean: 341.1027, p95: 1_803.35 }),
    cells: { control: [], treatment: [] },
    claims: [{ claim: 'error_ratio < 5%', found: '2.1%', holds: true }],
  })),
  decisions: repeated(12, (at) => ({
    atMs: at * 10_000 + 3,
    what: `stage ${at}`,
    why: 'the gate, "closed"',
  })),
  faults: [
    { name: 'slow', type: 'conn.latency', ...noHits, decided: 640, injected: 318, masked: 290, surfaced: 28 },
  ],
  detection: { firstEffectAtMs: 20_114.25, afterMs: 2_311.5, sign: 'breaker search/query open' },
  rollback: { atMs: 100_004, tookMs: 3.21, armed: [], arms: [], chaos: 'armed', troubled: [] },
  recovery: {
    recoveredAfterMs: 81_402.11,
    steadyAfterMs: 1_512.3,
    layers: { 'breaker search/query': 1_402.2 },
    waitedMs: 20_000,
    limitMs: 30_000,
  },
  estimates: [
    { of: 'outcome', expected: 'completed', found: 'completed', isRight: true },
    { of: 'p95', expected: '1.5s', found: '1.8s', isRight: true },
  ],
})

const reasons = [
  'all stages are over, and the steady state holds',
  'the steady state did not return: p95 was 812ms, above 500ms',
  'claude-sre stopped the run',
  'error_ratio of the treatment was 12.4 % over 10s, above 5 %',
]

/** 39 runs of two days, beside the first: two of three completed. */
const runs = repeated(39, (at): RunRecord => {
  const kind = at % 3 === 2 ? 1 + (at % 9) / 3 : 0
  const requestedAt = NOW - at * 4_100_000 + whole(60_000)
  const latency = at % 2 === 0
  const type = latency ? 'conn.latency' : 'rpc.error'
  return {
    ...run,
    id: `${requestedAt.toString(36)}-${whole(2 ** 31)
      .toString(16)
      .padStart(8, '0')}`,
    name: `${['search', 'orders', 'billing'][at % 3]}-${latency ? 'latency' : 'errors'}`,
    state: (['completed', 'deviated', 'aborted', 'failed'] as const)[Math.floor(kind)]!,
    reason: reasons[Math.floor(kind)]!,
    actor: at % 4 === 3 ? 'ops-2' : 'claude-sre',
    requestedAt,
    endedAt: requestedAt + 200_000 + whole(400_000),
    targets: {
      environment: 'staging',
      servers: [{ name: ['search', 'orders', 'billing'][at % 3]!, tools: [], hit: [] }],
    },
    spec: { ...run.spec, faults: [{ ...run.spec.faults[0]!, type }] },
    stages: run.stages.slice(0, 1 + (at % 2)),
    faults: [{ ...run.faults[0]!, type, injected: whole(400) }],
    recovery: { ...run.recovery!, recoveredAfterMs: kind > 1 ? undefined : whole(9_000_000) / 100 },
    estimates: at % 4 === 3 ? [] : run.estimates,
  }
})

/** 78 servers: most have traffic, and six are down. */
const servers = repeated(78, (at) => {
  const name = `${['payments', 'search', 'crm', 'docs', 'ops'][at % 5]}-${at}`
  const isUp = at % 13 !== 0
  return {
    name,
    state: isUp ? 'up' : 'down',
    config: { type: at % 3 === 0 ? 'stdio' : 'http' },
    eras: isUp ? [at % 4 === 0 ? { modern: {} } : { legacy: {} }] : [],
    entries: () => ({ length: 3 + (at % 17) }),
    protected: at % 10 === 0,
    health: { paces: isUp ? [{ baselineMs: 2 + whole(30_000) / 1_000 }] : [] },
    traffic:
      isUp && at % 5 !== 4 ? { perMinute: whole(3_000) / 15, p95: 20 + whole(900_000) / 1_000 } : undefined,
  }
})

const incidents = repeated(30, (at) => {
  const startedAt = NOW - at * 7_200_000
  const isOver = at > 2
  return {
    id: `inc-${1_000 + at}`,
    server: servers[at % 78]!.name,
    reason: at % 2 === 0 ? 'connection_refused' : 'timeout',
    startedAt,
    detectedAt: startedAt + 4_000 + whole(4_000),
    detectedAfterMs: 4_000.125 + whole(4_000),
    ...(isOver && { endedAt: startedAt + 90_000, recoveredAfterMs: 90_000, end: 'answers' }),
    message: 'connect ECONNREFUSED 10.0.3.17:8080\u202e, "retry": [later]',
  }
})

const history = new RunHistory(
  runs,
  () => [run],
  () => Promise.resolve(undefined),
)
const gameDay = {
  id: 'gd-1-00000000',
  plan: { name: 'plan-0', title: 'A title', experiments: [], scope: { servers: ['search'] } },
  state: 'over',
  reason: 'all experiments were run or skipped',
  by: 'writer',
  startedAt: NOW,
  steps: repeated(32, (at) => ({
    name: `experiment-${at}`,
    state: 'done',
    runs: [`run-${at}`],
    note: '',
    beganAt: NOW + at * 60_000,
    result: {
      state: 'completed',
      verdict: 'passed',
      reasons: [],
      why: 'all stages were completed',
      recoveredMs: 1_000.125 + whole(4_000),
      rtoMs: 30_000,
      endedAt: NOW + at * 60_000 + 50_000,
    },
  })),
  pauses: [],
  observations: repeated(40, (at) => ({
    at: NOW + at * 1_000,
    by: 'alice',
    step: `experiment-${at % 32}`,
    text: `the page of ${at} orders, "slow" \u202e: [retry]`,
  })),
  actions: [],
  events: [],
}
const operations = {
  clock: new ManualClock(),
  history,
  live: {
    current: {
      servers: new Map(servers.map((server) => [server.name, server])),
      mesh: { setsOf: () => [], has: () => false },
      config: {},
    },
  },
  state: { list: () => [] },
  traffic: {
    of(isMeant: (server: string) => boolean) {
      const recent = servers.find(({ name }) => isMeant(name))?.traffic
      if (recent === undefined) return undefined
      return { perMinute: recent.perMinute, figures: figuresOf({ calls: 900, p95: recent.p95 }) }
    },
  },
  incidents: { list: () => incidents, open: [] },
  plans: {
    reports: () => Promise.resolve([]),
    list: () =>
      Promise.resolve(
        repeated(25, (at) => ({
          ok: true,
          kind: at % 5 === 0 ? 'gameday' : 'guarded',
          name: `plan-${at}`,
          title: `Do agents notice slow ${at}, reads?`,
        })),
      ),
  },
  gameDays: { list: () => [gameDay], get: () => gameDay },
  agentRuns: {},
  signals: { precursors: () => [] },
} as unknown as Operations

const tokenizer = new Tiktoken(o200k)
const tokensOf = (text: string): number => tokenizer.encode(text, [], []).length

/** Returns all pages of a tool's answer, in a format. */
async function pagesOf(name: string, given: Json, format: PageArguments['format']): Promise<Answer[]> {
  const tool = tools.find((one) => one.name === name) as ControlTool
  const pages: Answer[] = []
  let cursor: unknown
  do {
    const args = tool.input.parse({ ...given, format, ...(cursor !== undefined && { cursor }) })
    const answer = await tool.run(args as never, { operations } as ToolContext)
    assert.ok(answer.ok, JSON.stringify(answer))
    tool.output.parse(answer.data)
    assert.ok(bytesOf(answer.text) + bytesOf(answer.data) <= MAX_ANSWER_BYTES)
    pages.push(answer)
    cursor = answer.data.next
  } while (cursor !== undefined)
  return pages
}

/** Returns the tokens of all pages of a tool's answer: in TOON, in compact and in indented JSON. */
async function measured(name: string, given: Json) {
  const json = await pagesOf(name, given, 'json')
  const toon = await pagesOf(name, given, 'toon')
  const sum = (pages: readonly Answer[], spaces?: number) =>
    pages.reduce(
      (all, { text, data }) => all + tokensOf(text) + tokensOf(JSON.stringify(data, null, spaces)),
      0,
    )
  return { json, toon, tokens: { toon: sum(toon), compact: sum(json), indented: sum(json, 2) } }
}

/** The largest tables: the highest tokens in TOON as shares of the tokens in compact and in indented JSON. */
const MOST = { compact: 0.75, indented: 0.45 }

/** The calls of tools with rows. `small`: rows of few numbers and long texts, which only need fewer tokens than JSON. */
const calls: readonly (readonly [string, Json, 'large' | 'small'])[] = [
  ['get_run', { run: run.id, part: 'samples' }, 'large'],
  ['list_runs', {}, 'large'],
  ['list_servers', {}, 'large'],
  ['list_fault_kinds', {}, 'large'],
  ['query_runs', { question: 'recovery' }, 'large'],
  ['query_runs', { question: 'verdicts' }, 'small'],
  ['query_runs', { question: 'estimates' }, 'small'],
  ['query_runs', { question: 'coverage' }, 'small'],
  ['list_incidents', {}, 'small'],
  ['list_plans', {}, 'small'],
  ['get_gameday', { part: 'steps' }, 'large'],
  ['get_gameday', { part: 'observations' }, 'small'],
  ['suggest_next', { limit: 20 }, 'small'],
  ['get_run', { run: run.id, part: 'stages' }, 'small'],
  ['get_run', { run: run.id, part: 'decisions' }, 'small'],
]

const rowsIn = (pages: readonly Answer[]) => pages.flatMap(({ data }) => data.rows as object[])
const rowsInToon = (pages: readonly Answer[], by?: string) =>
  pages.flatMap(({ text }) => (by === undefined ? (toonIn(text) as object[]) : joined(toonIn(text), by)))

describe('answers in TOON', () => {
  for (const [name, given, size] of calls)
    test(`${[name, ...Object.values(given)].join(' ')} says the same with fewer tokens`, async (t) => {
      const { json, toon, tokens } = await measured(name, given)
      assert.ok(json.length > 0 && toon.length <= json.length)
      const by = given.part === 'samples' ? 'phase' : undefined
      assertTells(rowsInToon(toon, by), rowsIn(json))
      for (const { data } of toon)
        assert.deepEqual(data, {
          total: json[0]!.data.total,
          ...(data.next !== undefined && { next: data.next }),
        })
      const share = { compact: tokens.toon / tokens.compact, indented: tokens.toon / tokens.indented }
      t.diagnostic(
        `${tokens.toon} tokens: ${share.compact.toFixed(2)} of ${tokens.compact} in compact JSON, ${share.indented.toFixed(2)} of ${tokens.indented} in indented JSON`,
      )
      const most = size === 'large' ? MOST : { compact: 0.9, indented: 0.6 }
      assert.ok(share.compact <= most.compact && share.indented <= most.indented)
    })

  test('a foreign text stays in a column `untrusted`, and its control and direction marks are escaped', async () => {
    const [page] = await pagesOf('list_incidents', {}, 'toon')
    assert.match(page!.text.split('\n')[1]!, /,untrusted\{message\}/)
    const marks = '\u202e\u2066\u200f\u0000\u001b\u0085\u2028\ufeff'
    const rows = [
      { untrusted: { message: `a${marks}b` } },
      { untrusted: { [`key${marks}`]: [`a${marks}`, 'b c'] } },
    ]
    const { text } = tableAnswer(rows, { format: 'toon' }, 'Two.')
    assert.doesNotMatch(text, /[\u202e\u2066\u200f\u0000\u001b\u0085\u2028\ufeff]/)
    assertTells(toonIn(text), rows)
  })

  test('the first line names the version of the installed encoder', async () => {
    const path = join(root, 'node_modules/@toon-format/toon/package.json')
    const { version } = JSON.parse(readFileSync(path, 'utf8')) as { version: string }
    assert.match(version, new RegExp(`^${TOON_VERSION.replace('.', '\\.')}\\.`))
    const [page] = await pagesOf('list_plans', {}, 'toon')
    assert.equal(page!.text.split('\n')[0], `25 plans. TOON ${TOON_VERSION}:`)
  })

  test('numbers have 4 digits, times whole seconds, and whole numbers stay exact', () => {
    const rows = [
      { a: 0.123456, b: 1234.567, c: 123_456_789, d: -0.00098765, at: '2025-10-15T17:40:16.999Z' },
    ]
    const told = [{ a: 0.1235, b: 1235, c: 123_456_789, d: -0.0009877, at: '2025-10-15T17:40:16Z' }]
    assert.deepEqual(decode(toonOf(rows)), told)
  })

  test('halves of surrogate pairs become U+FFFD', () => {
    assert.deepEqual(decode(toonOf([{ a: '\ud83d', b: 'x\udca5y', c: '💥' }])), [
      { a: '\ufffd', b: 'x\ufffdy', c: '💥' },
    ])
  })

  test('an answer without rows is an empty list', () => {
    const { text, data } = tableAnswer([], { format: 'toon' }, '0 runs.')
    assert.deepEqual([toonIn(text), data], [[], { total: 0 }])
  })

  test('a row longer than an answer is cut, and any rows fit into answers', () => {
    const rows = repeated(40, (at) => ({ at, why: '"quoted",\n'.repeat(at === 20 ? 4_000 : 20 * (at % 7)) }))
    const seen: Json[] = []
    let cursor: string | undefined
    do {
      const { text, data } = tableAnswer(rows, { format: 'toon', cursor }, '40 rows.')
      assert.ok(bytesOf(text) + bytesOf(data) <= MAX_ANSWER_BYTES)
      seen.push(...(toonIn(text) as Json[]))
      cursor = data.next as string | undefined
    } while (cursor !== undefined)
    assert.deepEqual(
      seen.map(({ at }) => at),
      rows.map(({ at }) => at),
    )
    assert.equal(seen[20]!.cut, true)
    assertTells(seen.toSpliced(20, 1), rows.toSpliced(20, 1))
  })

  test('the decoder returns any rows', () => {
    const nasty = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({
        unit: fc.constantFrom(
          '"',
          "'",
          ',',
          ':',
          '\n',
          '\t',
          '\\',
          '-',
          '#',
          '[',
          ']',
          '{',
          '}',
          '|',
          ' ',
          '0',
          '1',
          '.',
          'e',
        ),
      }),
      fc.constantFrom(
        'null',
        'true',
        'false',
        '',
        '-',
        '- a',
        '-1',
        '01',
        '1e5',
        '0x1',
        '+1',
        '.5',
        '#',
        '[]',
        '[0]:',
        '{}',
        ' a',
        'a ',
        'a: b',
        '\u202ea',
        '\ufeffa',
        'é',
        '\u00a0',
        '\r',
        '💥',
      ),
      fc.double().map(String),
    )
    const key = fc.oneof(nasty, fc.constantFrom('a', 'b', 'untrusted', '__proto__', 'constructor'))
    const leaf = fc.oneof(
      nasty,
      fc.integer(),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.boolean(),
      fc.constant(null),
    )
    const cell = fc.oneof(leaf, fc.array(nasty, { maxLength: 3 }))
    const columns = fc.uniqueArray(fc.tuple(key, fc.boolean()), { maxLength: 5, selector: ([name]) => name })
    const rows = columns.chain((names) =>
      fc.array(
        fc
          .tuple(
            ...names.map(([, isNested]) =>
              fc.option(
                (isNested ? fc.dictionary(key, cell, { maxKeys: 3 }) : cell) as fc.Arbitrary<unknown>,
                { nil: undefined },
              ),
            ),
          )
          .map((cells) => Object.fromEntries(names.map(([name], at) => [name, cells[at]]))),
        { minLength: 1, maxLength: 5 },
      ),
    )
    fc.assert(
      fc.property(rows, (some) => {
        const given = JSON.parse(JSON.stringify(some)) as Json[]
        const text = toonOf(some)
        assert.doesNotMatch(
          text,
          /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/,
        )
        assertTells(decode(text), given)
      }),
      { numRuns: 200 },
    )
  })
})
