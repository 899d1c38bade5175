import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { parse } from 'yaml'
import { envelopeSchema } from '../../src/approval/envelope.ts'
import { envelopeLines } from '../../src/commands/agents/envelope-text.ts'
import { yamlOf } from '../../src/commands/agents/proposal.ts'
import { readExperiment } from '../../src/gateway/guarded/file.ts'
import { experimentSpec } from '../../src/gateway/guarded/spec.ts'

const envelope = {
  format: 1,
  id: 'env-abcd1234',
  gateway: `gw-${'0'.repeat(32)}`,
  environment: 'staging',
  notBefore: '2026-01-01T00:00:00Z',
  expiresAt: '2026-01-15T00:00:00Z',
  proposers: ['claude-sre'],
  targets: [{ server: 'search', identity: 'a'.repeat(64), tools: ['query_docs'] }],
  faults: [{ type: 'conn.latency', maxRate: 0.4, limits: { 'distribution.delay': 5_000 } }],
  maxStage: '6m',
  maxRun: '21m',
  gate: ['error_ratio < 5% for 30s'],
  budget: { runs: 11, perDay: 3, aborts: 1 },
}

describe('what a person reads before a signature', () => {
  test('an envelope shows each of its limits, and the defaults', () => {
    const text = envelopeLines(envelopeSchema.parse(envelope)).join('\n')
    for (const part of [
      /env-abcd1234: for the gateway gw-0{32} in the environment staging/,
      /from 2026-01-01T00:00:00Z to 2026-01-15T00:00:00Z \(14d\)/,
      /claude-sre/,
      /target search, identity a{64}: tools query_docs/,
      /read_only/,
      /conn\.latency: rate up to 0\.4; distribution\.delay at most 5s; no free text/,
      /a run has one fault/,
      /10%, then 25%, then 50%/,
      /a stage lasts up to 6m, and a run up to 21m/,
      /error_ratio < 5% for 30s/,
      /over up to 5s, needs up to 10 calls, and waits up to 30s/,
      /no limit on faults a minute/,
      /no limit on tenants/,
      /at any time of the week/,
      /up to 11 runs in all, and 3 in 24 hours/,
      /suspended after 1 run that did not complete/,
    ])
      assert.match(text, part)
  })

  test('an envelope shows traffic, windows, texts and the sum of rates, without control characters', () => {
    const text = envelopeLines(
      envelopeSchema.parse({
        ...envelope,
        maxRate: 0.7,
        faults: [{ type: 'result.field', maxRate: 1, texts: ['a\u001b[2Jb'] }],
        traffic: { hitsPerMinute: 90, tenants: 2 },
        windows: [{ days: 'mon-fri', from: '09:00', to: '16:00', zone: 'Europe/Berlin' }],
        gateWindow: { over: '9s', minimum: 7, missing: '8s' },
      }),
    ).join('\n')
    for (const part of [
      /several faults, with rates up to 0\.7 in all/,
      /no number other than the defaults; free texts "a\\u001b\[2Jb"/,
      /above 90 faults a minute/,
      /up to 2 tenants/,
      /runs on mon-fri from 09:00 to 16:00, Europe\/Berlin/,
      /over up to 9s, needs up to 7 calls, and waits up to 8s/,
    ])
      assert.match(text, part)
    assert.ok(!text.includes('\u001b'))
  })

  test('an experiment is shown in the words of a config, and means the same', async () => {
    const folder = 'config/experiments'
    const files = (await readdir(folder)).filter((file) => file.endsWith('.yaml'))
    assert.ok(files.length > 5)
    for (const file of files) {
      const read = await readExperiment(join(folder, file))
      assert.ok(read.ok, file)
      const { load, ...spec } = read.spec
      const text = yamlOf(spec).join('\n')
      assert.deepEqual(experimentSpec.parse(parse(text)), spec, file)
      assert.doesNotMatch(text, /^approval:/m)
      assert.doesNotMatch(text, /duration: \d+$/m, file)
      assert.ok(load === undefined || yamlOf(read.spec).length > yamlOf(spec).length)
    }
  })
})
