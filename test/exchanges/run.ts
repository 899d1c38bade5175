import { parseArgs } from 'node:util'
import { differences } from './compare.ts'
import { readRecord, writeRecord } from './record.ts'
import { playAll } from './script/index.ts'

/** Maximum number of printed differences; one change often shows in many exchanges. */
const MOST = 20

/**
 * `npm run exchanges` plays all exchanges and compares them with the record; it fails on any difference. `-- --record`
 * writes a new record.
 */
const { values } = parseArgs({ options: { record: { type: 'boolean', default: false } } })
const began = performance.now()
const exchanges = await playAll()
const took = `${exchanges.length} exchanges in ${((performance.now() - began) / 1_000).toFixed(1)} s`
if (values.record) {
  await writeRecord(exchanges)
  console.log(`${took}, recorded`)
} else {
  const found = differences(await readRecord(), exchanges)
  for (const difference of found.slice(0, MOST)) console.log(`${difference}\n`)
  console.log(`${took}, ${found.length} differences`)
  process.exitCode = found.length === 0 ? 0 : 1
}
