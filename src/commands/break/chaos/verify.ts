import { keptIn } from '../../../chaos/journal/head.ts'
import { type JournalCheck, type JournalProblem, verifyJournal } from '../../../chaos/journal/verify.ts'
import { formatIssue } from '../../../config/issues/issues.ts'
import { loadConfig } from '../../../config/load.ts'
import { whyUnreadable } from '../../../config/files/read-text.ts'
import { printable } from '../../../telemetry/printable.ts'
import { Misuse, UnusableInput } from '../../shared/arguments.ts'
import { type Command, type Given, textOf } from '../../shared/control-command.ts'

/**
 * `breakwater chaos verify`: checks that no entry of a journal was changed, removed, inserted, cut off or lost before
 * writing. Needs the key of the journal, but no running gateway.
 */
export const verify: Command = {
  options: {
    journal: { kind: 'list', value: 'FILE', about: 'the newest file; older files are found beside it' },
    state: { kind: 'text', value: 'FOLDER', about: "gateway.stateDir (default: the journal's folder)" },
    config: { kind: 'text', value: 'FILE', about: 'instead of both: a config naming journal and folder' },
  },
  async run(given) {
    const { out, values } = given
    const { journal, folder } = await placeOf(given)
    const check = await verifyJournal(journal, folder).catch((error: Error) => {
      throw new UnusableInput(`${journal} cannot be checked: ${whyUnreadable(error)}`)
    })
    const ok = check.problems.length === 0 && check.dropped === 0
    if (values.json === true) out.stdout(JSON.stringify({ ok, ...check }, undefined, 2))
    else if (ok) out.stdout(whole(check))
    else throw new UnusableInput([...check.problems.map(said), ...gapIn(check)].map(oneLine).join('\n'))
    return ok ? 0 : 1
  },
}

const oneLine = (problem: string): string => printable(problem)

interface Place {
  readonly journal: string
  readonly folder: string
}

async function placeOf({ values, env }: Given): Promise<Place> {
  const journals = Array.isArray(values.journal) ? (values.journal as readonly string[]) : []
  const config = textOf(values, 'config')
  if (journals.length > 1 || (journals.length === 0) === (config === undefined))
    throw new Misuse('verify needs either --journal FILE or --config FILE')
  const [journal] = journals
  if (journal !== undefined) return { journal, folder: keptIn(journal, textOf(values, 'state')) }
  const loaded = await loadConfig(config!, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  const { file } = loaded.config.chaos.journal
  if (file === undefined)
    throw new UnusableInput(`${config} has no chaos.journal.file: its journal is in memory only`)
  return { journal: file, folder: keptIn(file, loaded.config.gateway.stateDir) }
}

const whole = (check: JournalCheck): string => `the journal is whole: ${counted(check)}`

const gapIn = (check: JournalCheck): string[] =>
  check.dropped === 0
    ? []
    : [
        `the journal has gaps: ${counted(check)}, and ${check.dropped} more not written; a running gateway still writes waiting entries`,
      ]

const counted = ({ entries, files }: JournalCheck): string =>
  `${entries} entries in ${files === 1 ? '1 file' : `${files} files`}`

function said({ file, line, afterSeq, why }: JournalProblem): string {
  const place = line === undefined ? `${file}:` : `${file}:${line}`
  return `${place} ${why}${afterSeq === undefined ? '' : ` (after the entry with seq ${afterSeq})`}`
}
