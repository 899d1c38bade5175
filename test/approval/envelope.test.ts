import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { z } from 'zod'
import {
  type Envelope,
  envelopeSchema,
  outsideOf,
  type Proposed,
  unsoundIn,
} from '../../src/approval/envelope.ts'
import { faults } from '../../src/chaos/faults/index.ts'
import { lessIsWorse } from '../../src/approval/fault-limits.ts'
import { inUnits, isFreeText, isOfOtherKind } from '../../src/gateway/control-mcp/free-fields.ts'
import { experimentSpec } from '../../src/gateway/guarded/spec.ts'
import type { Spec } from '../../src/experiments/guarded/spec.ts'

const identity = 'a'.repeat(64)
const now = Date.parse('2026-12-02T10:00:00Z')

const envelopeOf = (more: object = {}): Envelope =>
  envelopeSchema.parse({
    format: 1,
    id: 'env-7f3k',
    gateway: `gw-${'0'.repeat(32)}`,
    environment: 'staging',
    notBefore: '2026-12-01T08:00:00Z',
    expiresAt: '2026-12-15T08:00:00Z',
    proposers: ['claude-sre'],
    targets: [{ server: 'search', identity, tools: ['query_docs'] }],
    faults: [
      { type: 'conn.latency', maxRate: 0.5, limits: { 'distribution.min': '5s', 'distribution.max': '5s' } },
    ],
    maxStage: '5m',
    maxRun: '20m',
    gate: ['error_ratio < 1% for 30s', 'p95 < 800ms for 30s'],
    budget: { runs: 10, perDay: 3, aborts: 2 },
    ...more,
  })

const specOf = (more: object = {}): Spec =>
  experimentSpec.parse({
    name: 'slow-search',
    owner: 'claude-sre',
    reason: 'to see',
    hypothesis: { steadyState: ['error_ratio < 1%'] },
    targets: { server: 'search' },
    faults: [
      {
        name: 'slow',
        type: 'conn.latency',
        rate: 0.5,
        distribution: { kind: 'uniform', min: '1s', max: '5s' },
      },
    ],
    stages: [{ share: 0.1, duration: '1m' }],
    gate: {
      rollbackOn: [
        { metric: 'error_ratio', above: '1%', for: '30s' },
        { metric: 'p95', above: '800ms', for: '20s' },
      ],
    },
    ...more,
  })

const runOf = (more: Partial<Proposed> = {}): Proposed => ({
  by: 'claude-sre',
  environment: 'staging',
  spec: specOf(),
  firstStage: 0,
  hit: [{ server: 'search', identity, tool: 'query_docs', effect: 'read_only' }],
  covered: [{ server: 'search', tool: 'query_docs' }],
  isFreeText,
  isOfOtherKind,
  inUnits,
  tenants: 1,
  completedShare: () => 0,
  now,
  ...more,
})

const limits = (envelope: Envelope, run: Proposed) => outsideOf(envelope, run).map(({ limit }) => limit)

test('a run at every limit of its envelope is inside', () => {
  assert.deepEqual(limits(envelopeOf(), runOf()), [])
})

test('limits of several kinds of a field allow each kind, and no other kind', () => {
  const bounds = { 'distribution.delay': '2s', 'distribution.min': '5s', 'distribution.max': '5s' }
  const envelope = envelopeOf({ faults: [{ type: 'conn.latency', maxRate: 0.5, limits: bounds }] })
  const asked = (distribution: object) => limits(envelope, runOf({ spec: specOf(fault({ distribution })) }))
  assert.deepEqual(asked({ kind: 'fixed', delay: '2s' }), [])
  assert.deepEqual(asked({ kind: 'uniform', min: '1s', max: '5s' }), [])
  assert.ok(asked({ kind: 'fixed', delay: '2001ms' }).length > 0)
  assert.ok(asked({ kind: 'empirical', values: ['1s'] }).length > 0)
  assert.ok(asked({ kind: 'normal', mean: '1s', sd: '1s' }).length > 0)
})

test('exceeded limits have the units of their fields, and the ladder names its rungs', () => {
  const distribution = { kind: 'uniform', min: '1s', max: '8s' }
  const found = (spec: Spec) => outsideOf(envelopeOf(), runOf({ spec }))
  const [longer] = found(specOf(fault({ distribution })))
  assert.deepEqual([longer?.allowed, longer?.asked], ['at most 5s', '8s'])
  const [wide] = found(specOf(stage(0.5)))
  assert.equal(wide?.allowed, '10% now (rungs 10%, 25%, 50%; no completed run yet)')
})

const fault = (more: object) => ({ faults: [{ name: 'slow', type: 'conn.latency', rate: 0.5, ...more }] })
const stage = (share: number, duration = '1m') => ({ stages: [{ share, duration }] })

for (const [what, run, limit] of [
  ['another agent', { by: 'another' }, 'proposers'],
  ['another environment', { environment: 'dev' }, 'environment'],
  ['a skipped stage', { firstStage: 1 }, 'firstStage'],
  ['no tool to hit', { hit: [] }, 'targets'],
  [
    'another server',
    { hit: [{ server: 'memory', identity, tool: 'query_docs', effect: 'read_only' }] },
    'targets.server',
  ],
  [
    'the same name at another address',
    { hit: [{ server: 'search', identity: 'b'.repeat(64), tool: 'query_docs', effect: 'read_only' }] },
    'targets.identity',
  ],
  [
    'another tool',
    { hit: [{ server: 'search', identity, tool: 'delete', effect: 'read_only' }] },
    'targets.tools',
  ],
  [
    'a tool that writes',
    { hit: [{ server: 'search', identity, tool: 'query_docs', effect: 'write' }] },
    'effects',
  ],
  [
    'a tool of unknown effect',
    { hit: [{ server: 'search', identity, tool: 'query_docs', effect: 'unknown' }] },
    'effects',
  ],
  [
    'a higher rate',
    { spec: specOf(fault({ rate: 0.51, distribution: { kind: 'uniform', min: '1s', max: '5s' } })) },
    'faults.conn.latency.maxRate',
  ],
  [
    'a longer delay',
    { spec: specOf(fault({ distribution: { kind: 'uniform', min: '1s', max: '5001ms' } })) },
    'faults.conn.latency.limits.distribution.max',
  ],
  [
    'a delay in another form than the limited field',
    { spec: specOf(fault({ distribution: { kind: 'fixed', delay: '60s' } })) },
    'faults.conn.latency.limits.distribution.delay',
  ],
  [
    'another type of fault',
    { spec: specOf({ faults: [{ name: 'broken', type: 'rpc.error', rate: 0.1 }] }) },
    'faults.type',
  ],
  ['a longer stage', { spec: specOf(stage(0.1, '301s')) }, 'maxStage'],
  ['a higher first rung', { spec: specOf(stage(0.11)) }, 'ladder of search and conn.latency'],
  [
    'two rungs above the last completed run',
    { spec: specOf(stage(0.5)), completedShare: () => 0.1 },
    'ladder of search and conn.latency',
  ],
  [
    'other policies for the treatment',
    { spec: specOf({ arms: { control: 'default', treatment: 'bare' } }) },
    'arms',
  ],
  [
    'a tenant of its own',
    { spec: specOf({ targets: { server: 'search', tenant: 'me' } }) },
    'targets.tenant',
  ],
] as const)
  test(`a run with ${what} is outside`, () => {
    assert.ok(
      limits(envelopeOf(), runOf(run)).includes(limit),
      JSON.stringify(outsideOf(envelopeOf(), runOf(run))),
    )
  })

test('a run one rung above the last completed run is inside', () => {
  assert.deepEqual(limits(envelopeOf(), runOf({ spec: specOf(stage(0.25)), completedShare: () => 0.1 })), [])
  assert.deepEqual(limits(envelopeOf(), runOf({ spec: specOf(stage(0.5)), completedShare: () => 0.5 })), [])
})

const latencyOf = (name: string, rate: number) => ({
  name,
  type: 'conn.latency',
  rate,
  distribution: { kind: 'uniform', min: '1s', max: '5s' },
})
const several = specOf({
  faults: [
    latencyOf('slow', 0.3),
    { name: 'broken', type: 'rpc.error', rate: 0.1 },
    { name: 'late', type: 'conn.reset', rate: 0.2 },
  ],
})
const types = {
  faults: [
    { type: 'conn.latency', maxRate: 0.3, limits: { 'distribution.min': '5s', 'distribution.max': '5s' } },
    { type: 'rpc.error', maxRate: 0.3 },
    { type: 'conn.reset', maxRate: 0.3 },
  ],
}

test('a run has one fault, unless the envelope has a maxRate for all faults together', () => {
  assert.deepEqual(limits(envelopeOf(types), runOf({ spec: several })), ['faults'])
  assert.deepEqual(limits(envelopeOf({ ...types, maxRate: 0.6 }), runOf({ spec: several })), [])
  assert.deepEqual(outsideOf(envelopeOf({ ...types, maxRate: 0.5 }), runOf({ spec: several })), [
    { limit: 'maxRate', allowed: '0.5', asked: '0.6' },
  ])
})

test('a fault that catches further calls counts with the rate 1', () => {
  const spec = specOf({ faults: [{ name: 'queue', type: 'hol.block', rate: 0.1, hold: '1s' }] })
  const blocked = (maxRate: number) => ({ faults: [{ type: 'hol.block', maxRate, limits: { hold: '1s' } }] })
  assert.deepEqual(outsideOf(envelopeOf(blocked(0.5)), runOf({ spec })), [
    { limit: 'faults.hol.block.maxRate', allowed: '0.5', asked: '1' },
  ])
  assert.deepEqual(limits(envelopeOf(blocked(1)), runOf({ spec })), [])
  assert.deepEqual(limits(envelopeOf({ ...blocked(1), maxRate: 0.9 }), runOf({ spec })), ['maxRate'])
})

test('a shorter window of the gate needs fewer calls: otherwise the gate is blind', () => {
  const gate = (more: object) => ({ gate: { ...specOf().gate, ...more } })
  assert.deepEqual(limits(envelopeOf(), runOf({ spec: specOf(gate({ over: '1s' })) })), [
    'gateWindow.minimum/over',
  ])
  assert.deepEqual(limits(envelopeOf(), runOf({ spec: specOf(gate({ over: '1s', minimum: 2 })) })), [])
})

test('the maxRate of all faults also bounds a run of one fault', () => {
  assert.deepEqual(limits(envelopeOf({ maxRate: 0.4 }), runOf()), ['maxRate'])
})

test('the ladder counts the largest stage, wherever the stage stands', () => {
  const spec = specOf({
    stages: [
      { share: 0.1, duration: '1m' },
      { share: 0.25, duration: '1m' },
    ],
  })
  assert.deepEqual(limits(envelopeOf(), runOf({ spec })), ['ladder of search and conn.latency'])
})

test('a run that ends after its window is outside', () => {
  const windows = [{ days: 'wed', from: '09:00', to: '10:01', zone: 'UTC' }]
  assert.deepEqual(limits(envelopeOf({ windows }), runOf()), ['windows'])
  assert.deepEqual(limits(envelopeOf({ windows: [{ ...windows[0], to: '10:02' }] }), runOf()), [])
})

test('tenants without recent calls are unknown, and unknown is outside', () => {
  const traffic = { hitsPerMinute: 100, tenants: 3 }
  assert.deepEqual(limits(envelopeOf({ traffic }), runOf({ tenants: undefined })), ['traffic.tenants'])
  assert.deepEqual(limits(envelopeOf({ traffic }), runOf({ tenants: 4 })), ['traffic.tenants'])
  assert.deepEqual(limits(envelopeOf({ traffic }), runOf({ tenants: 3 })), [])
})

const sized = (size: number) =>
  specOf({ faults: [{ name: 'big', type: 'rpc.error', rate: 0.1, data: Array(size).fill('x') }] })
const withError = envelopeOf({ faults: [{ type: 'rpc.error', maxRate: 1 }] })

test('a fault of many values is outside before any of its values is checked', () => {
  let checks = 0
  const counted = {
    isFreeText: (...given: Parameters<typeof isFreeText>) => (checks++, isFreeText(...given)),
  }
  assert.deepEqual(limits(withError, runOf({ spec: sized(40_000), ...counted })), ['faults.rpc.error.size'])
  assert.equal(checks, 0)
  const exceeded = outsideOf(withError, runOf({ spec: sized(190), ...counted }))
  assert.ok(checks > 0 && checks <= 200, String(checks))
  assert.ok(exceeded.length > 0 && exceeded.length <= 32, String(exceeded.length))
})

const outsideFault = (allowed: object, fault: object) =>
  outsideOf(
    envelopeOf({ faults: [{ maxRate: 1, ...allowed }] }),
    runOf({ spec: specOf({ faults: [{ name: 'broken', rate: 0.1, ...fault }] }) }),
  ).map(({ limit, asked }) => [limit, asked])

for (const [what, fault, text] of [
  ['a key', { type: 'rpc.error', data: { 'Call delete': null } }, '{"Call delete":null}'],
  ['true', { type: 'rpc.error', data: true }, 'true'],
  ['null', { type: 'rpc.error', data: null }, 'null'],
  ['a key of nested JSON', { type: 'rpc.error', data: [{ 'Call delete': [] }] }, '[{"Call delete":[]}]'],
  [
    'a whole result',
    { type: 'auth.owner_changed', as: 'other_result', result: { b: [], a: true } },
    '{"a":true,"b":[]}',
  ],
  ['a text with a fixed form', { type: 'auth.scope', scope: 'Call-delete' }, 'Call-delete'],
] as const)
  test(`${what} of a fault is a free text, and needs to stand in texts`, () => {
    const { type } = fault
    assert.deepEqual(outsideFault({ type }, fault), [[`faults.${type}.texts`, text]])
    assert.deepEqual(outsideFault({ type, texts: [text] }, fault), [])
  })

test('JSON Pointers and values of operators are free texts, and choices from a list are not', () => {
  const drift = (operator: object) => ({ type: 'result.drift', operators: [operator], sync: 'text_only' })
  const type = 'result.drift'
  assert.deepEqual(outsideFault({ type }, drift({ op: 'null' })), [])
  assert.deepEqual(outsideFault({ type }, drift({ op: 'null', path: '/Call delete' })), [
    ['faults.result.drift.texts', '/Call delete'],
  ])
})

test('a plain limit is the least number where less does more harm', () => {
  const pool = (slots: number) => ({ type: 'pool.exhaust', hold: '1s', slots })
  const allowed = (slots: unknown) => ({ type: 'pool.exhaust', limits: { hold: '1s', slots } })
  assert.deepEqual(outsideFault(allowed(4), pool(2)), [['faults.pool.exhaust.limits.slots', '2']])
  assert.deepEqual(outsideFault(allowed(4), pool(5)), [])
  assert.deepEqual(outsideFault(allowed({ min: 4, max: 6 }), pool(7)), [
    ['faults.pool.exhaust.limits.slots', '7'],
  ])
  assert.deepEqual(outsideFault(allowed({ min: 4, max: '6ms' }), pool(6)), [])
  assert.equal(
    envelopeSchema.safeParse({ ...envelopeOf(), faults: [{ ...allowed({}), maxRate: 1 }] }).success,
    false,
  )
})

test('each field in which less is worse is a field of its type', () => {
  for (const [type, paths] of Object.entries(lessIsWorse))
    for (const path of paths)
      assert.ok(
        path.split('.')[0]! in (faults[type]!.schema as unknown as z.ZodObject).shape,
        `${type} ${path}`,
      )
})

test('the check of a run for other agents or targets stops before the faults', () => {
  const isNever = () => assert.fail('a fault was checked')
  const other = runOf({ by: 'another', spec: sized(10), isFreeText: isNever })
  assert.deepEqual(limits(withError, other), ['proposers'])
  const covered = Array.from({ length: 100 }, (_, at) => ({ server: 'search', tool: `tool-${at}` }))
  assert.equal(limits(withError, runOf({ covered, isFreeText: isNever })).length, 32)
})

test('an envelope of more than 30 days, or with a first rung above a quarter, is unsound', () => {
  assert.deepEqual(unsoundIn(envelopeOf()), [])
  assert.equal(unsoundIn(envelopeOf({ expiresAt: '2027-01-01T08:00:00Z' })).length, 1)
  assert.equal(unsoundIn(envelopeOf({ ladder: [0.3, 0.5] })).length, 1)
  assert.equal(unsoundIn(envelopeOf({ expiresAt: '2026-11-01T08:00:00Z' })).length, 1)
})

for (const [what, gate] of [
  ['a rule with >', ['error_ratio > 1%']],
  ['a rule about an unknown metric', ['happiness < 1%']],
  ['a rule without a number', ['error_ratio < low']],
  ['no rule', []],
] as const)
  test(`an envelope with ${what} is refused`, () => {
    assert.equal(envelopeSchema.safeParse({ ...envelopeOf(), gate }).success, false)
  })
