import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { textOf } from '../../../src/sim/studies/text.ts'
import { studies } from '../../../src/sim/studies/index.ts'
import type { Findings, Row, Study } from '../../../src/sim/studies/study.ts'

/** Runs a study twice; a test compares both runs. */
export async function runTwice(study: Study): Promise<Findings> {
  // Both before the test: within a test, each promise of a simulation costs several times as much.
  const findings = await study.run({ seed: 1, seeds: 1 })
  const again = await study.run({ seed: 1, seeds: 1 })
  test('the same seed gives the same bytes', () => {
    assert.equal(JSON.stringify(again), JSON.stringify(findings))
  })
  return findings
}

/**
 * Runs a study by name, with the number of seeds from the page about blast radius; a test compares the findings with
 * the page, which `npm run docs` writes. Throws if the page does not show the study.
 */
export async function runAsShown(name: string): Promise<Findings> {
  const page = await readFile('docs/blast-radius.md', 'utf8')
  const command = new RegExp(
    `<!-- breakwater study ${name} --seeds (\\d+)( --brief)? -->\n+\`\`\`text\n([^]*?)\`\`\``,
  )
  const [, count, brief, shown] = command.exec(page)!
  const { [name]: study } = studies
  const [seed, seeds] = [1, Number(count)]
  const findings = await study!.run({ seed, seeds })
  test('the page about blast radius shows what is found (npm run docs)', () => {
    const text = textOf({ name, about: study!.about, seed, seeds, ...findings }, brief !== undefined)
    assert.equal(shown, `${text.replace(/[ ]+$/gm, '').trim()}\n`)
  })
  return findings
}

/** Returns the only row with these values, of the first tables or of the named table. */
export function rowOf({ tables }: Findings, values: Row, name?: string): Row {
  const { rows } = tables.find((table) => name === undefined || table.name === name)!
  const found = rows.filter((row) => Object.entries(values).every(([key, value]) => row[key] === value))
  assert.equal(found.length, 1, `rows with ${JSON.stringify(values)}`)
  return found[0]!
}

/** A number of a row. */
export function numberIn(row: Row, key: string): number {
  const value = row[key]
  assert.ok(typeof value === 'number', `${key} is ${value}`)
  return value
}
