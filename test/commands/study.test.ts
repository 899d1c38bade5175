import assert from 'node:assert/strict'
import { test } from 'node:test'
import { study } from '../../src/commands/compare/sim/study.ts'

/** Runs the command and returns everything it wrote. */
async function run(...args: string[]) {
  const [stdout, stderr]: [string[], string[]] = [[], []]
  const out = {
    stdout: (line: string) => void stdout.push(line),
    stderr: (line: string) => void stderr.push(line),
  }
  const code = await study(args, out, {})
  return { code, stdout: stdout.join('\n'), stderr: stderr.join('\n') }
}

// Outside of tests: within a test, each promise of a simulation costs several times as much.
const table = await run('hol', '--seeds', '1')
const [json, sameJson] = [
  await run('hol', '--seeds', '1', '--seed', '7', '--json'),
  await run('hol', '--seeds', '1', '--seed', '7', '--format', 'json'),
]
const csv = await run('retry-storm', '--seeds', '1', '--format', 'csv')
const html = await run('retry-storm', '--seeds', '1', '--format', 'html')

test('a study is a table first, whose first line says the numbers of its model, and sentences last', () => {
  const { code, stdout } = table
  assert.equal(code, 0)
  assert.match(stdout, /^hol: .*the slow tool takes 5s.*seeds: 1\.\n/)
  assert.match(stdout, /\npolicies +calls of +p50 +p95 +success +good calls\nnone +fast tools/)
  assert.match(stdout, /\nConclusions\n- The p95 of fast tools/)
})

test('--json gives plain data, the same as --format json', () => {
  const { stdout } = json
  const { name, seed, seeds, tables } = JSON.parse(stdout)
  assert.deepEqual([name, seed, seeds], ['hol', 7, 1])
  assert.equal(tables[0].rows.length, 12)
  assert.equal(sameJson.stdout, stdout)
})

test('csv has one head for tables and lines over time', () => {
  const [head = '', ...lines] = csv.stdout.split('\n')
  assert.match(head, /^table,levels,budgets,.*,seconds,offered attempts\/s,answers\/s/)
  assert.equal(lines.filter((line) => line.startsWith('arms,')).length, 10)
  assert.equal(lines.filter((line) => line.startsWith('"agent, budgets: none",')).length, 60)
  const columns = head.split(',').length
  for (const line of lines) assert.equal(line.replace(/"[^"]*"/g, '').split(',').length, columns, line)
})

test('html is one page that loads nothing, with bars for tables and charts for lines over time', () => {
  const { stdout } = html
  assert.match(stdout, /^<!doctype html>/)
  assert.equal(stdout.match(/<svg /g)?.length, 10)
  assert.equal(stdout.match(/class="chart"/g)?.length, 10)
  assert.doesNotMatch(stdout, /(src|href)="/)
})

test('an unknown study and no seeds are misuse', async () => {
  const unknown = await run('agnets')
  assert.equal(unknown.code, 2)
  assert.match(unknown.stderr, /^breakwater study: unknown study "agnets"; did you mean agents\?/)
  assert.match(
    (await run()).stderr,
    /^breakwater study: NAME is missing; there are correlated, retry-storm, hol/,
  )
  assert.match((await run('hol', '--seeds', '0')).stderr, /--seeds must be a whole number from 1 to 10000/)
})
