import assert from 'node:assert/strict'
import { test } from 'node:test'
import { limitsOf } from '../../src/config/limits.ts'
import { config } from '../../src/config/schema/schema.ts'

const MIB = 1024 ** 2
const limits = (gateway = {}) => limitsOf(config.parse({ gateway }).gateway)

const defaults = {
  shares: {
    calls: { max: 2_000, perClient: 1_000 },
    callers: { max: 1_024, perClient: 512 },
    connections: { max: 20_000, perClient: 10_000 },
    initializeParams: { max: 128 * MIB, perClient: 64 * MIB },
    listens: { max: 10_000, perClient: 5_000 },
    pendingInputs: { max: 1_000, perClient: 500 },
    answers: { max: 64 * MIB, perClient: 32 * MIB },
    pipelined: { max: 4_096, perClient: 2_048 },
    sessions: { max: 10_000, perClient: 5_000 },
  },
  bodies: {
    ...{ total: 64 * MIB, perAddress: 32 * MIB, count: 4_000, countPerAddress: 2_000 },
    ...{ stalled: 10_000, whole: 60_000 },
  },
  replies: { total: 256 * MIB, perServer: 128 * MIB },
  unread: { total: 64 * MIB, perSession: 16 * MIB, stalled: 30_000 },
  replay: { total: 64 * MIB, events: 256, bytes: 512 * 1024 },
}

type Derived = typeof defaults
const { shares, bodies, unread, replay } = defaults

for (const [given, gateway, changed] of [
  ['nothing', {}, {}],
  [
    'twice the memory',
    { limits: { memory: '1280MiB' } },
    {
      shares: {
        ...shares,
        initializeParams: { max: 256 * MIB, perClient: 128 * MIB },
        answers: { max: 128 * MIB, perClient: 64 * MIB },
      },
      bodies: { ...bodies, total: 128 * MIB, perAddress: 64 * MIB },
      replies: { total: 512 * MIB, perServer: 256 * MIB },
      unread: { ...unread, total: 128 * MIB, perSession: 32 * MIB },
      replay: { ...replay, total: 128 * MIB },
    },
  ],
  [
    'all of it for each client',
    { limits: { perClient: 1 } },
    {
      shares: Object.fromEntries(
        Object.entries(shares).map(([name, { max }]) => [name, { max, perClient: max }]),
      ) as Derived['shares'],
      bodies: { ...bodies, perAddress: 64 * MIB, countPerAddress: 4_000 },
    },
  ],
  [
    'another time to stall',
    { limits: { stalled: '10s' } },
    { bodies: { ...bodies, stalled: 3_333, whole: 20_000 }, unread: { ...unread, stalled: 10_000 } },
  ],
  [
    'a single call',
    { maxInFlight: 1 },
    {
      shares: { ...shares, calls: { max: 1, perClient: 1 }, pendingInputs: { max: 1, perClient: 1 } },
      bodies: { ...bodies, count: 2, countPerAddress: 1 },
    },
  ],
  [
    'few sessions',
    { sessions: { max: 7 } },
    { shares: { ...shares, sessions: { max: 7, perClient: 3 }, listens: { max: 7, perClient: 3 } } },
  ],
] as const satisfies readonly (readonly [string, object, Partial<Derived>])[])
  test(`limits that follow from ${given}`, () =>
    assert.deepEqual(limits(gateway), { ...defaults, ...changed }))
