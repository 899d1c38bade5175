import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sweep } from '../../src/commands/compare/sim/sweep.ts'
import type { SweepCell } from '../../src/sim/sweep.ts'

async function run(...args: readonly string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await sweep(args, out, {})
  return { code, text: lines.join('\n'), errors: errors.join('\n') }
}

const TASKS = 200
const SEEDS = 5

const small = ['--seeds', '2', '--tasks', '50', '--rates', '0.02,0.1', '--fan-outs', '2,8']

// Outside of tests: within a test, each promise of a simulation costs several times as much.
const bare = await run('--only', 'none', '--seeds', String(SEEDS), '--json')
const all = await run(...small)

test('without policies every cell agrees with 1 - (1 - p)^n within three standard errors', () => {
  const { cells } = JSON.parse(bare.text) as { cells: SweepCell[] }
  assert.equal(cells.length, 5 * 4)
  for (const { rate, fanOut, predicted, measured, policies } of cells) {
    assert.equal(policies, 'none')
    assert.ok(Math.abs(predicted - (1 - (1 - rate) ** fanOut)) < 1e-6)
    const error = Math.sqrt((predicted * (1 - predicted)) / (TASKS * SEEDS))
    assert.ok(
      Math.abs(measured - predicted) < 3 * error,
      `${rate} × ${fanOut}: ${measured} against ${predicted} ± ${error}`,
    )
  }
})

test('policies that decide nothing share a table with those in force by default', () => {
  const { code, text } = all
  assert.equal(code, 0)
  assert.match(text, /^predicted: /m)
  assert.match(text, / ± 0\.0/)
  assert.doesNotMatch(text, / ± 0\.000/)
  assert.match(text, /^none, without retry$/m)
  assert.match(text, /^default, without deadline, .*without verdict$/m)
})

test('the same sweep prints the same bytes, as JSON, CSV and a page that loads nothing', async () => {
  const only = [...small, '--only', 'none,default']
  const json = await run(...only, '--format', 'json')
  assert.deepEqual(await run(...only, '--json'), json)
  const csv = await run(...only, '--format', 'csv')
  assert.equal(csv.text.split('\n').length, 1 + 2 * 2 * 2)
  assert.match(csv.text, /^rate,fan_out,policies,predicted,measured,sd\n0\.02,2,none,0\.0396,/)
  const page = await run(...only, '--format', 'html')
  assert.match(page.text, /^<!doctype html>/)
  assert.equal(page.text.match(/<svg /g)?.length, 4)
  assert.doesNotMatch(page.text, /<script|(?:src|href)=/)
})

test('lists that make no sense are refused in words', async () => {
  const bad = [
    [['--rates', '0.1,2'], 2, /--rates must be ratios from 0 to 1/],
    [['--fan-outs', '0'], 2, /--fan-outs must be whole numbers from 1 to 1000/],
    [['--only', 'nothing'], 2, /there is no "nothing"; there are none, default, without deadline/],
    [['--seeds', '1000', '--tasks', '100000'], 1, /a sweep simulates at most 500000000/],
  ] as const
  for (const [args, code, said] of bad) {
    const result = await run(...args)
    assert.equal(result.code, code)
    assert.match(result.errors, said)
  }
})

test('one run has no standard deviation, and is told in the singular', async () => {
  const one = ['--seeds', '1', '--tasks', '1', '--rates', '0.02', '--fan-outs', '2', '--only', 'none']
  assert.match((await run(...one)).text, /^share of 1 task with a failure, .*; mean of 1 seed, /)
  assert.match((await run(...one, '--format', 'csv')).text, /^0\.02,2,none,0\.0396,[01],$/m)
  const { cells } = JSON.parse((await run(...one, '--json')).text) as { cells: SweepCell[] }
  assert.equal(cells[0]?.sd, null)
})
