import assert from 'node:assert/strict'
import { test } from 'node:test'
import { targets } from './targets/index.ts'

/** The same cases in every run, unless asked otherwise; `npm run test:fuzz` looks for others. */
const seed = Number(process.env.FUZZ_SEED ?? 20_260_728)
const runs = process.env.FUZZ_RUNS

for (const { name, shortRuns, check } of targets)
  test(name, async () => {
    const failure = await check({ seed, numRuns: runs === undefined ? shortRuns : Number(runs) })
    assert.equal(failure?.report, undefined, failure?.report)
  })
