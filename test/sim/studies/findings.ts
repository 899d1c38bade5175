import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Findings, Row, Study } from '../../../src/sim/studies/study.ts'

/** Runs a study twice; a test finds out whether it says the same both times. */
export async function runTwice(study: Study): Promise<Findings> {
  // Both before the test: within one, each promise of a simulation costs several times as much.
  const findings = await study.run({ seed: 1, seeds: 1 })
  const again = await study.run({ seed: 1, seeds: 1 })
  test('the same seed gives the same bytes', () => {
    assert.equal(JSON.stringify(again), JSON.stringify(findings))
  })
  return findings
}

/** The only row of the first tables that has these values, or of the one with that name. */
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
