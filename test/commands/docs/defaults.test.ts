import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { withOutputs } from '../../../docs/generate/outputs.ts'
import { DEFAULTS, defaultsPictures, defaultsText } from '../../../src/sim/defaults-page.ts'
import { newcombeInterval } from '../../../src/experiments/statistics/proportions.ts'
import { USUAL_NAME } from '../../../src/sim/studies/defaults.ts'
import { overloads } from '../../../src/sim/studies/defaults/overload.ts'
import { rows } from '../../../src/sim/studies/defaults/rows.ts'
import type { Findings, Row } from '../../../src/sim/studies/study.ts'
import { bound } from '../../support/bound.ts'
import { main } from '../../support/main.ts'

// In a separate process: within a test, each promise of a simulation costs several times as much.
const { stdout } = await promisify(execFile)(process.execPath, [main, ...DEFAULTS.split(' '), '--json'], {
  env: bound(),
  maxBuffer: 64 * 1024 ** 2,
})
const findings = JSON.parse(stdout) as Findings
const rowsOf = (name: string) => findings.tables.find((table) => table.name === name)!.rows
const numberIn = (row: Row, key: string) => Number(row[key])

/** Tolerated excess of a share: one percentage point. */
const POINT = 0.01

/** How often chance alone may make the defaults look worse than no policies in a row. */
const ALPHA = 0.01

const lossOf = (server: Row[string] | undefined, load: Row[string] | undefined) =>
  `${String(server)} under ${String(load)}`
const OVERLOAD = 'overload'

/** Losses that the study explains. */
const explained = new Set([
  ...rows.flatMap(({ name, loses }) => (loses === undefined ? [] : lossOf(name, loses.under))),
  ...overloads.flatMap(({ name, loses }) => (loses === undefined ? [] : lossOf(name, OVERLOAD))),
])

/** Rows in which the defaults fail more tasks than no policies, by more than a point or beyond chance. */
const worse = rowsOf('cells').flatMap((own) => {
  if (own.policies !== 'default') return []
  const bare = rowsOf('cells').find(
    ({ load, server, policies }) => load === own.load && server === own.server && policies === 'none',
  )!
  const countOf = (row: Row) => {
    const units = numberIn(row, 'tasks')
    return { successes: Math.round(numberIn(row, 'failedTasks') * units), units }
  }
  // Each side of a two-sided interval has half of `alpha`.
  const { estimate, low } = newcombeInterval(countOf(bare), countOf(own), 2 * ALPHA)
  return estimate > POINT || low > 0 ? lossOf(own.server, own.load) : []
})

/** Rows in which another set fails a point fewer tasks, or leaves a point fewer calls unanswered. */
const behindIn = (table: string, load: string) =>
  rowsOf(table).flatMap(({ server, ...shares }) =>
    Number(shares.default) > Math.min(...Object.values(shares).map(Number)) + POINT
      ? lossOf(server, load)
      : [],
  )
const behind = [...behindIn('sets', USUAL_NAME), ...behindIn('overload', OVERLOAD)]

test('the page about the defaults and its pictures are what its command makes (npm run docs)', async () => {
  const page = await readFile('docs/defaults.md', 'utf8')
  assert.equal(await withOutputs(page, () => Promise.resolve(defaultsText(findings))), page)
  for (const [path, picture] of Object.entries(defaultsPictures(findings))) {
    assert.equal(await readFile(`docs/${path}`, 'utf8'), picture, path)
    assert.ok(page.includes(path), `the page shows ${path}`)
  }
})

test('the defaults fail no more tasks than no policies under any fault, except where the study says why', () => {
  assert.deepEqual(
    worse.filter((loss) => !explained.has(loss)),
    [],
  )
})

test('no other set of policies is a point better than the defaults, except where the study says why', () => {
  assert.deepEqual(
    behind.filter((loss) => !explained.has(loss)),
    [],
  )
})

test('the study gives reasons only for losses', () => {
  assert.deepEqual([...new Set([...worse, ...behind])].sort(), [...explained].sort())
})

test('the defaults recover where impatient agents keep every other set but breakers down', () => {
  const [, impatient] = rowsOf('overload')
  assert.ok(numberIn(impatient!, 'default') < 0.05, JSON.stringify(impatient))
  assert.ok(numberIn(impatient!, 'none') > 0.5, JSON.stringify(impatient))
  for (const row of rowsOf('overload'))
    assert.ok(numberIn(row, 'default') <= numberIn(row, 'breakers'), JSON.stringify(row))
})

test('the defaults send hardly more than no policies, except under errors, and no write twice', () => {
  for (const row of rowsOf('price')) {
    const percent = /^(\d+) % errors$/.exec(String(row.server))?.[1]
    const most = percent === undefined ? 1.1 : Math.min(1.7, 1 / (1 - Number(percent) / 100) + 0.05)
    assert.ok(numberIn(row, 'attempts') <= most, JSON.stringify(row))
  }
  const writes = rowsOf('cells').filter(({ twice }) => twice !== null)
  assert.ok(writes.length > 0)
  for (const row of writes.filter(({ policies }) => policies === 'default'))
    assert.equal(row.twice, 0, JSON.stringify(row))
})
