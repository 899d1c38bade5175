import type { Env } from '../../config/files/interpolate.ts'
import { isStateFolder } from '../../evidence/run-index.ts'
import { runTables } from '../../evidence/tables.ts'
import { gameDayTables } from '../../gamedays/tables.ts'
import { Misuse, optionLines, type Output, runCommand, UnusableInput } from '../shared/arguments.ts'
import { endingInOrder } from '../shared/signals.ts'
import { table } from '../shared/table.ts'
import { storedGameDays } from './stored-gamedays.ts'
import { eachRun, stateFolder, storedRunsOptions } from './stored-runs.ts'
import { filled, type TableFile, tableFormats, writeTables } from './table-files.ts'

export const exportOptions = {
  parquet: { kind: 'text', value: 'DIR', about: 'writes Parquet files to a folder' },
  jsonl: { kind: 'text', value: 'DIR', about: 'writes JSON Lines to a folder' },
  csv: { kind: 'text', value: 'DIR', about: 'writes CSV to a folder' },
  ...storedRunsOptions,
} as const

const usage = `breakwater runs export --parquet DIR [--jsonl DIR] [--csv DIR]

  Writes the index of runs as tables, one file a table: ${runTables.map(({ name }) => name).join(', ')}.
  All tables but "runs" name their run in "run_id". The GameDays become the tables ${gameDayTables.map(({ name }) => name).join(', ')},
  which name their GameDay in "gameday_id". Times are in UTC, durations in milliseconds, shares from 0 to 1.
  Existing files of these names are replaced, each as a whole.

${optionLines(exportOptions)}

  Exit codes: 0; 1 when the index cannot be read or a file cannot be written; 2 for wrong arguments.`

/** Rejects for the state folder of a gateway, where the table `runs` in JSON Lines would replace the index itself. */
async function requireOwn(folder: string): Promise<void> {
  if (!(await isStateFolder(folder))) return
  throw new UnusableInput(
    `${folder} is the state folder of a gateway, where an export could replace the index of runs: name another folder`,
  )
}

/** Characters per line of the list of files, without a terminal. */
const WIDE = 200

/** Runs `breakwater runs export` with the arguments after its name. Resolves to the exit code. */
export function exportRuns(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options: exportOptions, positionals: [] }, out, async (values) => {
    const wanted = tableFormats.flatMap((format) => {
      const folder = values[format]
      return folder === undefined ? [] : [{ format, folder }]
    })
    if (wanted.length === 0)
      throw new Misuse(`expected ${tableFormats.map((format) => `--${format} DIR`).join(', or ')}`)
    for (const { folder } of wanted) await requireOwn(folder)
    const gameDays = await storedGameDays(await stateFolder(values, env), out)
    const files = await endingInOrder(async (stop) => {
      const written: TableFile[] = []
      for (const { format, folder } of wanted) {
        const parts = [filled(runTables, eachRun(values, { env, out })), filled(gameDayTables, gameDays)]
        written.push(...(await writeTables(folder, format, parts, stop)))
      }
      return written
    })
    const rows = files.map(({ file, rows, bytes }) => [file, rows, bytes])
    for (const line of table(['file', 'rows', 'bytes'], rows, out.width ?? WIDE, out.paint)) out.stdout(line)
    return 0
  })
}
