import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { withOutputs } from '../../../src/commands/docs/outputs.ts'
import { DEFAULTS, defaultsPictures, defaultsText } from '../../../src/commands/simulated/defaults-page.ts'
import type { Findings, Row } from '../../../src/sim/studies/study.ts'
import { bound } from '../../support/bound.ts'
import { main } from '../../support/main.ts'

// In a process of its own: within a test, each promise of a simulation costs several times as much.
const { stdout } = await promisify(execFile)(process.execPath, [main, ...DEFAULTS.split(' '), '--json'], {
  env: bound(),
  maxBuffer: 64 * 1024 ** 2,
})
const findings = JSON.parse(stdout) as Findings
const rowsOf = (name: string) => findings.tables.find((table) => table.name === name)!.rows
const numberIn = (row: Row, key: string) => Number(row[key])

/** More tasks may fail than this only by chance. */
const CHANCE = 0.002

test('the page about the defaults and its pictures are what its command makes (npm run docs)', async () => {
  const page = await readFile('docs/defaults.md', 'utf8')
  assert.equal(await withOutputs(page, () => Promise.resolve(defaultsText(findings))), page)
  for (const [path, picture] of Object.entries(defaultsPictures(findings))) {
    assert.equal(await readFile(`docs/${path}`, 'utf8'), picture, path)
    assert.ok(page.includes(path), `the page shows ${path}`)
  }
})

test('the defaults fail no more tasks than no policies, whatever ails the server', () => {
  for (const row of rowsOf('sets'))
    assert.ok(numberIn(row, 'default') <= numberIn(row, 'none') + CHANCE, JSON.stringify(row))
  for (const row of rowsOf('loads'))
    assert.ok(numberIn(row, 'default') <= numberIn(row, 'none') + CHANCE, JSON.stringify(row))
})

test('no other set of policies fails a point less of the tasks than the defaults', () => {
  for (const { server, ...shares } of rowsOf('sets')) {
    const best = Math.min(...Object.values(shares).map(Number))
    assert.ok(Number(shares.default) <= best + 0.01, `${server}: ${JSON.stringify(shares)}`)
  }
})

test('the defaults recover where impatient agents keep every other set but breakers down', () => {
  const [, impatient] = rowsOf('overload')
  assert.ok(numberIn(impatient!, 'default') < 0.05, JSON.stringify(impatient))
  assert.ok(numberIn(impatient!, 'none') > 0.5, JSON.stringify(impatient))
  for (const row of rowsOf('overload'))
    assert.ok(numberIn(row, 'default') <= numberIn(row, 'breakers'), JSON.stringify(row))
})

test('the defaults send hardly more than no policies, but for errors, and no write twice', () => {
  for (const row of rowsOf('price')) {
    const percent = /^(\d+) % errors$/.exec(String(row.server))?.[1]
    const most = percent === undefined ? 1.1 : Math.min(1.7, 1 / (1 - Number(percent) / 100) + 0.05)
    assert.ok(numberIn(row, 'attempts') <= most, JSON.stringify(row))
  }
  for (const row of rowsOf('loads')) assert.ok((row.twice ?? 0) === 0, JSON.stringify(row))
})
