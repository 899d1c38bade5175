import assert from 'node:assert/strict'
import { test } from 'node:test'
import { targets } from './targets/index.ts'

/** The same cases in every run by default; `npm run test:fuzz` looks for others. */
const seed = Number(process.env.FUZZ_SEED ?? 20_260_728)
const runs = process.env.FUZZ_RUNS

for (const { name, shortRuns, inputs = 1, check, close } of targets)
  test(name, async (t) => {
    t.after(() => close?.())
    const failure = await check({
      seed,
      numRuns: runs === undefined ? shortRuns : Math.ceil(Number(runs) / inputs),
    })
    assert.equal(failure?.report, undefined, failure?.report)
  })
