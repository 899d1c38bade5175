import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { modes } from '../../fixtures/counting/modes.ts'
import { cleanUp } from '../support/gateway.ts'
import { type Cell, routes, runRoute, tableOf, titleOf, violationsOf } from './cells.ts'

const results = new Map<string, Cell[]>()

after(async () => {
  console.log(tableOf(results))
  await cleanUp()
})

// Concurrent, because the tests mostly wait and share no state.
describe('servers of the modern era', { concurrency: 3 }, () => {
  for (const route of routes)
    test(`writes to a server of the modern era run once in ${modes.length} failure modes (${titleOf(route)})`, async () => {
      const cells = await runRoute('modern', route)
      results.set(titleOf(route), cells)
      assert.deepEqual(violationsOf(titleOf(route), cells), [])
    })
})
