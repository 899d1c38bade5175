import { readFile } from 'node:fs/promises'
import { verifyText, type Line } from '../../chaos/journal/chain.ts'
import type { Replayed } from '../../chaos/journal/explain.ts'
import { decideAgain } from './again.ts'
import { Misuse, textOf, type Command, type Given } from './command.ts'
import { readPlanFile } from './plan-file.ts'
import { table } from './table.ts'
import { printable } from '../../telemetry/printable.ts'

/** Most differences that are printed one by one. */
const MAX_PRINTED = 50

/** `replay --plan FILE --journal FILE`: checks a journal, and decides again what it says was decided. */
export const replay: Command = {
  options: { plan: { type: 'string' }, journal: { type: 'string', multiple: true } },
  async run(given) {
    const { values, out } = given
    const path = textOf(values, 'plan')
    const files = Array.isArray(values.journal) ? values.journal.map(String) : []
    if (path === undefined || files.length === 0)
      throw new Misuse('replay needs --plan FILE and --journal FILE')
    const journal = await readJournal(files)
    if (!journal.ok) return failed(given, [journal.why])
    const read = await readPlanFile(path, given.env)
    if (!read.ok) return failed(given, read.problems)
    const replayed = decideAgain(read.plan, journal.lines)
    if (values.json === true) out.stdout(JSON.stringify(replayed, undefined, 2))
    else for (const line of told(replayed, journal.lines, given)) out.stdout(printable(line))
    if (replayed.decisions > 0) return replayed.same === replayed.decisions ? 0 : 1
    return failed(given, ['the journal has no decisions: nothing was compared'])
  },
}

function failed({ out }: Given, problems: readonly string[]): number {
  for (const problem of problems) out.stderr(`breakwater: ${problem}`)
  return 1
}

type ReadJournal =
  { readonly ok: true; readonly lines: readonly Line[] } | { readonly ok: false; readonly why: string }

/** Reads the files of one journal, the oldest first; each has to go on from the one before. */
async function readJournal(files: readonly string[]): Promise<ReadJournal> {
  const lines: Line[] = []
  let last: string | undefined
  for (const file of files) {
    const text = await readFile(file, 'utf8').catch((error: Error) => error)
    if (text instanceof Error) return { ok: false, why: `cannot read ${file}: ${text.message}` }
    const verified = verifyText(text, last)
    if (!verified.ok) {
      return { ok: false, why: `the chain of ${file} is broken: line ${verified.line} ${verified.why}` }
    }
    last = verified.last
    for (const line of verified.lines) lines.push(line)
  }
  return { ok: true, lines }
}

function told({ decisions, same, differing }: Replayed, lines: readonly Line[], { width }: Given): string[] {
  const dropped = lines.reduce((sum, line) => sum + (line.kind === 'gap' ? line.dropped : 0), 0)
  const said = [
    `${lines.length} lines, the chain is whole; ${same} of ${decisions} decisions come out the same`,
  ]
  if (dropped > 0)
    said.push(`${dropped} entries were never written: there were too many, or the disk refused`)
  if (differing.length === 0) return said
  const rows = differing
    .slice(0, MAX_PRINTED)
    .map(({ seq, fault, what, was, now }) => [seq, fault, what.replace('_', ' '), String(was), String(now)])
  const more = decisions - same - rows.length
  const rest = more > 0 ? [`and ${more} more`] : []
  return [...said, '', ...table(['SEQ', 'FAULT', 'WHAT', 'WAS', 'NOW'], rows, width), ...rest]
}
