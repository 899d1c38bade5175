/** Measures the gateway's promises about streams, sessions and reloads; fails on a broken promise. See README.md. */
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock } from '../src/mesh/clock.ts'
import { promises } from './streams-promises.ts'
import { Stage } from './growth-stage.ts'

/** A longer run counts as hanging and fails. */
const LIMIT_MS = 30 * 60_000

process.once('uncaughtException', fail)
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    /** Divisor of the counts, for a quick look. */
    part: { type: 'string', default: '1' },
  },
})
const chosen = values.only ?? Object.keys(promises)
for (const name of chosen)
  if (promises[name] === undefined)
    throw new Error(`--only: expected one of ${Object.keys(promises).join(', ')}`)
const part = Number(values.part)
if (!(part >= 1)) throw new Error('--part: expected a number, 1 or more')
const scratch = mkdtempSync(join(tmpdir(), 'breakwater-streams-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.once(name, () => process.exit(1))
systemClock.after(LIMIT_MS, () => fail(new Error(`not done after ${LIMIT_MS / 60_000} min`)))

console.log(`${process.version} on ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}\n`)
const broken: string[] = []
for (const name of chosen) {
  const { says, measure, most, unit } = promises[name]!
  const stage = await Stage.open(scratch, fail)
  const { value, more } = await measure(stage, part)
  await stage.close()
  const holds = value <= most
  if (!holds) broken.push(name)
  const verdict = holds ? 'holds' : 'DOES NOT HOLD'
  console.log(`${name}: ${says}: ${value.toFixed(2)} of at most ${most} ${unit}, ${verdict}\n  ${more}`)
}
if (broken.length > 0) console.log(`\nbroken: ${broken.join(', ')}`)
process.exitCode = broken.length > 0 ? 1 : 0

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  console.error(`bench: ${error.message}`)
  process.exit(1)
}
