/** Measures how costs of a gateway grow with servers, tools, sessions and calls; see README.md. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock } from '../src/mesh/clock.ts'
import { curves } from './growth-curves.ts'
import { dimensions } from './growth-dimensions.ts'
import { pageOf, tableOf, type Dimension } from './growth-report.ts'
import { Stage } from './growth-stage.ts'

/** A longer run counts as hanging and fails. */
const LIMIT_MS = 30 * 60_000

process.once('uncaughtException', fail)
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    most: { type: 'string', default: '1000000' },
    out: { type: 'string' },
  },
})
const chosen = values.only ?? Object.keys(dimensions)
for (const name of chosen)
  if (dimensions[name] === undefined)
    throw new Error(`--only: expected one of ${Object.keys(dimensions).join(', ')}`)
const most = Number(values.most)
if (!(most >= 1)) throw new Error('--most: expected a number, 1 or more')
const scratch = mkdtempSync(join(tmpdir(), 'breakwater-growth-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.once(name, () => process.exit(1))
systemClock.after(LIMIT_MS, () => fail(new Error(`not done after ${LIMIT_MS / 60_000} min`)))

const machine = `${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}.`
console.log(machine)
const results: Dimension[] = []
for (const name of chosen) {
  const { measure, counts } = dimensions[name]!
  const stage = await Stage.open(scratch, fail)
  const from = systemClock.now()
  const result = await measure(
    stage,
    counts.filter((count) => count <= most),
  )
  await stage.close()
  results.push(result)
  console.log(
    `\n${name}, measured in ${Math.round((systemClock.now() - from) / 1_000)} s\n\n${tableOf(result)}`,
  )
  if (values.out !== undefined) write(values.out)
}

/** Written after each dimension, so that an aborted run keeps its results. */
function write(folder: string): void {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'growth.json'), JSON.stringify({ machine, dimensions: results }, null, 2))
  writeFileSync(join(folder, 'growth.md'), pageOf(results, machine))
  writeFileSync(join(folder, 'growth.svg'), curves(results))
}

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  console.error(`bench: ${error.message}`)
  process.exit(1)
}
