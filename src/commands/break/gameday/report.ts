import { join } from 'node:path'
import { readKey } from '../../../chaos/journal/head.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { readRuns } from '../../../evidence/journal.ts'
import { readIndex } from '../../../evidence/read-index.ts'
import { earlierOf } from '../../../gamedays/comparison.ts'
import { type GameDayRecord, isGameDayOver } from '../../../gamedays/record.ts'
import { gameDayDocument } from '../../../gamedays/report-html.ts'
import { reportOn } from '../../../gamedays/report.ts'
import { systemClock } from '../../../mesh/clock.ts'
import { version } from '../../../protocol/identity.ts'
import { printable } from '../../../telemetry/printable.ts'
import { documentOptions, printDocument } from '../../evidence/documents.ts'
import { storedGameDays } from '../../evidence/stored-gamedays.ts'
import { stateFolder, storedRunsOptions } from '../../evidence/stored-runs.ts'
import { Misuse, optionLines, type Output, runCommand, UnusableInput } from '../../shared/arguments.ts'

export const reportOptions = { ...documentOptions, ...storedRunsOptions } as const

const usage = `breakwater gameday report [ID | NAME]

  Prints the report on a GameDay: objective, scenario, participants, results, changes since the earlier GameDay, gaps,
  actions and limits. NAME is the name of the plan, for its latest GameDay; without a name, the latest GameDay that is
  over. Reads the state folder of a gateway, and needs no running gateway.
  \`breakwater evidence verify FILE\` checks that nobody changed a signed report.

${optionLines(reportOptions)}

  Exit codes: 0; 1 when no report can be made; 2 for wrong arguments.`

/** Runs `breakwater gameday report` with the arguments after its name. Resolves to the exit code. */
export function report(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options: reportOptions }, out, async (values, [wanted, extra]) => {
    if (extra !== undefined) throw new Misuse(`unexpected argument "${extra}"`)
    const folder = await stateFolder(values, env)
    const records = await storedGameDays(folder, out)
    const record = found(records, wanted)
    if (record === undefined)
      throw new UnusableInput(
        printable(
          wanted === undefined
            ? `${folder} has no GameDay that is over`
            : `${folder} has no GameDay "${wanted}"`,
        ),
      )
    const stored = await storedIn(folder)
    const made = reportOn(record, {
      ...stored,
      earlier: earlierOf(record, records),
      nowMs: systemClock.wall(),
      version,
    })
    return printDocument(gameDayDocument, made, values, out)
  })
}

/** `records`: the oldest first. */
const found = (records: readonly GameDayRecord[], wanted: string | undefined): GameDayRecord | undefined =>
  wanted === undefined
    ? records.findLast(isGameDayOver)
    : (records.find(({ id }) => id === wanted) ?? records.findLast(({ plan }) => plan.name === wanted))

/** Reads the runs of a state folder. Rejects with an `UnusableInput`. */
async function storedIn(folder: string) {
  const unreadable = (error: Error) => {
    throw new UnusableInput(`the runs in ${folder} cannot be read: ${error.message}`)
  }
  const key = await readKey(folder).catch(unreadable)
  const journal =
    key === undefined
      ? { runs: [], problems: [] }
      : await readRuns(join(folder, 'experiments'), key).catch((error: NodeJS.ErrnoException) =>
          error.code === 'ENOENT' ? { runs: [], problems: [] } : unreadable(error),
        )
  const index = await readIndex(folder, { arms: [] }).catch(unreadable)
  return {
    isDamaged: journal.problems.length + index.problems.length > 0,
    stored: {
      records: new Map(journal.runs.map((run) => [run.id, run])),
      summaries: new Map(index.runs.map((run) => [run.id, run])),
    },
  }
}
