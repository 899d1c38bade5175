/** Measures Breakwater, its references and foreign gateways over a matrix of loads, in one run; see README.md. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/mesh/clock.ts'
import { measureMatrix } from './matrix.ts'
import { commandOf, readOptions, type Options } from './options.ts'
import { checkPage, writePage } from './page.ts'
import { provenance, thisMachine, type CellResult, type LeftOut, type Results } from './results.ts'
import { inColumns, leftOutLine, paceNote, tableOf } from './tables.ts'

/**
 * A run far beyond its time hangs or is starved; its results are kept. Starts, ends and last rounds take extra time.
 */
const SLACK = 1.5
const SLACK_MS = 120_000

process.once('uncaughtException', fail)
const args = process.argv.slice(2)
const options = readOptions(args)
if (options.page !== undefined) checkPage(options.page)
const results = options.from === undefined ? await measured(options) : read(options.from)
print(provenance(results))
if (options.json !== undefined) writeFileSync(options.json, JSON.stringify(results))
if (options.page !== undefined) writePage(options.page, results)
// Exits even if something is still running.
process.exit(results.leftOut.some(({ isFailure }) => isFailure === true) ? 1 : 0)

async function measured(options: Options): Promise<Results> {
  const scratch = mkdtempSync(join(tmpdir(), 'breakwater-bench-'))
  process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

  const cells: CellResult[] = []
  const leftOut: LeftOut[] = []
  const leaveOut = (row: LeftOut) => {
    leftOut.push(row)
    print(`left out: ${leftOutLine(row)}`)
  }
  let giveUp = () => {}
  const givenUp = new Promise<void>((resolve) => (giveUp = resolve))
  const matrix = measureMatrix(options, scratch, {
    begins() {
      const limitMs = options.minutes * 60_000 * SLACK + SLACK_MS
      systemClock.after(limitMs, () => {
        const why = `not done after ${Math.round(limitMs / 60_000)} min`
        leaveOut({ title: 'cells not measured yet', why, isFailure: true })
        giveUp()
      })
    },
    measured(cell) {
      cells.push(cell)
      print(`\n${cell.title}. ${paceNote(cell)}\n\n${inColumns(tableOf(cell))}\n`)
    },
    leftOut: leaveOut,
  })
  await Promise.race([matrix, givenUp])
  const date = new Date().toISOString().slice(0, 10)
  return { machine: thisMachine(), date, command: commandOf(args), cells, leftOut }
}

function read(file: string): Results {
  return JSON.parse(readFileSync(file, 'utf8')) as Results
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** The only exit after a failure; exiting ends the children. */
function fail(error: Error): never {
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
}
