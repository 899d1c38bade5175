import assert from 'node:assert/strict'
import fc from 'fast-check'
import { chaos as chaosSchema } from '../../../src/chaos/plan/schema.ts'
import { readPlan } from '../../../src/commands/run/plan-file.ts'
import { readWorkload } from '../../../src/load/workload.ts'
import { readExperiment } from '../../../src/gateway/guarded/file.ts'
import { formatIssue } from '../../../src/config/issues/issues.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { experimentSpec } from '../../../src/gateway/guarded/spec.ts'
import { isObject } from '../../../src/protocol/jsonrpc.ts'
import { readRecording, RecordingError } from '../../../src/sim/recording.ts'
import { FORMAT, MAX_ATTEMPTS, type RecordedCall } from '../../../src/telemetry/recording/format.ts'
import {
  documents,
  fileWith,
  jsonText,
  SECRET,
  sayWhere,
  shippedValues,
  withinBounds,
  type Written,
} from '../documents.ts'
import { asyncTarget, type Target } from '../target.ts'

const env = { SECRET, SEARCH_KEY: SECRET, CONTROL_TOKEN: SECRET }

const partsOf = (values: readonly unknown[], key: string): unknown[] =>
  values.flatMap((value) => (isObject(value) && key in value ? { [key]: value[key] } : []))

const configs = shippedValues('.')

/** Whole files, and each block of the longest file alone: short texts allow more reads in the same time. */
const blocks = configs.flatMap((value) =>
  isObject(value) ? Object.keys(value).flatMap((key) => partsOf([value], key)) : [],
)

/** Configs with the block `experiments` and the least that the block needs. */
const withExperiments = [
  {
    mcpServers: { remote: { url: 'http://127.0.0.1:1/mcp' } },
    policies: { sets: { cautious: { retry: { maxRetries: 0 } } } },
    experiments: (partsOf(configs, 'experiments')[0] as { experiments: unknown }).experiments,
  },
]

/** Removes positions, which differ between JSON and YAML. */
const placeless = (lines: readonly string[]) =>
  lines.map((line) => line.replace(/^\S+/, '').replaceAll(/ line \d+/g, '')).sort()

async function holdsOfConfig({ text, value }: Written): Promise<void> {
  const file = fileWith('config.yaml', text)
  const loaded = await withinBounds(() => loadConfig(file, env))
  const lines = (loaded.ok ? loaded.warnings : loaded.errors).map(formatIssue)
  if (!loaded.ok) sayWhere(lines, file)
  else if (lines.length > 0) sayWhere(lines, file)
  assert.equal([...loaded.files.keys()][0], file)
  if (value === undefined) return
  // The same value in JSON: the format must make no difference.
  const other = await loadConfig(fileWith('config.json', jsonText(value)), env)
  assert.equal(other.ok, loaded.ok)
  if (other.ok && loaded.ok) assert.equal(other.hash, loaded.hash)
  else if (!other.ok && !loaded.ok)
    assert.deepEqual(placeless(other.errors.map(formatIssue)), placeless(lines))
}

const config = asyncTarget(
  'a config is read, or each error says where it is, whatever stands in the file',
  documents([...configs, ...blocks, ...blocks]),
  holdsOfConfig,
)

const experiments = asyncTarget(
  'the block experiments is read, or each error says where it is, whatever stands there',
  documents(withExperiments),
  holdsOfConfig,
)

const plans = asyncTarget(
  'a plan is read, or each error says where it is, and what was read can be read again',
  documents([
    ...partsOf(configs, 'chaos').map((value) => (value as { chaos: unknown }).chaos),
    ...shippedValues('workloads', (name) => name.endsWith('.plan.yaml')),
    ...shippedValues('scenarios'),
    // Formats of other tools.
    { seed: 7, faults: { 'memory.read_*': { type: 'latency', min_ms: 10, max_ms: 20, probability: 0.5 } } },
    {
      faults: [
        { tool: 'read', kind: 'timeout', rate: 0.5 },
        { tool: '*', kind: 'error', rate: 1 },
      ],
    },
    { aliases: { a: 'wrapped' }, faults: [{ target: 'a', config: { type: 'latency', delayMs: 5 } }] },
  ]),
  async ({ text }) => {
    const file = fileWith('plan.yaml', text)
    const read = await withinBounds(() => readPlan(file, env, false))
    if (!read.ok) return sayWhere(read.problems, file)
    assert.deepEqual(chaosSchema.parse(read.written), read.chaos)
  },
)

const workloads = asyncTarget(
  'a workload is read, or each error says where it is, whatever stands in the file',
  documents(shippedValues('workloads', (name) => !name.endsWith('.plan.yaml'))),
  async ({ text }) => {
    const file = fileWith('workload.yaml', text)
    const read = await withinBounds(() => readWorkload(file))
    if (!read.ok) sayWhere(read.problems, file)
  },
)

const guarded = asyncTarget(
  'an experiment is read, or each error says where it is, and a gateway reads the same out of what is sent to it',
  documents(shippedValues('experiments')),
  async ({ text }) => {
    const file = fileWith('experiment.yaml', text)
    const read = await withinBounds(() => readExperiment(file))
    if (!read.ok) return sayWhere(read.problems, file)
    assert.deepEqual(experimentSpec.parse(JSON.parse(JSON.stringify(read.written))), read.spec)
  },
)

const header = {
  breakwaterRecording: FORMAT,
  version: '0.1.0',
  startedAt: '2026-07-28T00:00:00.000Z',
  part: 1,
  environment: 'test',
  sample: 1,
  policiesHash: 'a',
  servers: { s: { t: 'read_only' } },
}

const time = fc.oneof(fc.nat({ max: 100_000 }), fc.constantFrom(0, 0.5, 1e15))

const call: fc.Arbitrary<RecordedCall> = fc.record(
  {
    at: time,
    task: fc.constantFrom('t1', '__proto__', ''),
    step: fc.nat({ max: 9 }),
    key: fc.constantFrom('k', 'constructor'),
    server: fc.constantFrom('s', '__proto__', 'toString'),
    tool: fc.constantFrom('t', 'constructor'),
    effect: fc.constantFrom('read_only' as const, 'write' as const, 'unknown' as const),
    tenant: fc.constant('x'),
    result: fc.constantFrom(
      'returned' as const,
      'timeout' as const,
      'rejected' as const,
      'cancelled' as const,
    ),
    tookMs: time,
    waitedMs: time,
    overheadMs: time,
    retries: fc.nat({ max: 3 }),
    attempts: fc.array(
      fc.record({
        number: fc.integer({ min: 1, max: 40 }),
        at: time,
        tookMs: time,
        outcome: fc.constantFrom('returned' as const, 'transport_error' as const),
        requestBytes: fc.nat(),
      }),
      { maxLength: MAX_ATTEMPTS },
    ),
  },
  {
    requiredKeys: [
      ...(['at', 'key', 'server', 'tool', 'effect', 'tenant', 'result', 'tookMs'] as const),
      ...(['waitedMs', 'overheadMs', 'retries', 'attempts'] as const),
    ],
  },
)

/** A line of a recording: a call, or garbage. */
const line = fc.oneof(
  { weight: 6, arbitrary: call.map((value) => ({ text: JSON.stringify(value), value })) },
  {
    weight: 3,
    arbitrary: fc
      .oneof(
        fc.tuple(call, fc.nat()).map(([value, at]) => {
          const text = JSON.stringify(value)
          return text.slice(0, at % text.length)
        }),
        fc.constantFrom(
          '{"lost":3}',
          '{"lost":-1}',
          'null',
          '[]',
          '{"__proto__":{"x":1}}',
          '\ufeff',
          '"',
          '{}',
        ),
        fc.string({ unit: 'binary', maxLength: 20 }).map((text) => text.replaceAll(/[\r\n]/g, '')),
      )
      .map((text) => ({ text, value: undefined })),
  },
)

const recordings = asyncTarget(
  'of a recording all whole lines are read in the order of their times, or it is said why there is nothing to read',
  fc.record({
    first: fc.oneof(
      { weight: 8, arbitrary: fc.constantFrom(JSON.stringify(header), `\ufeff${JSON.stringify(header)}`) },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          '',
          '{}',
          'null',
          '{"breakwaterRecording":2}',
          JSON.stringify({ ...header, part: 0 }),
        ),
      },
    ),
    lines: fc.array(line, { maxLength: 12 }),
    end: fc.constantFrom('\n', '\r\n', '\n\n'),
    isCut: fc.boolean(),
  }),
  async ({ first, lines, end, isCut }) => {
    const text = [first, ...lines.map(({ text }) => text)].join(end) + (isCut ? '' : end)
    const file = fileWith('recording.jsonl', text)
    const calls = lines.flatMap(({ value }) => value ?? [])
    const read = await withinBounds(() => readRecording(file)).catch((error: unknown) => error)
    const isWhole = first.includes('"part":1') && calls.length > 0
    if (!isWhole) {
      assert.ok(read instanceof RecordingError, String(read))
      assert.ok(read.message.startsWith(file), read.message)
      return
    }
    assert.ok(!(read instanceof Error), String(read))
    const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value))
    assert.deepEqual(
      plain((read as { calls: unknown }).calls),
      plain(calls.toSorted((one, other) => one.at - other.at)),
    )
  },
)

export const fileTargets: readonly Target[] = [config, experiments, plans, workloads, guarded, recordings]
