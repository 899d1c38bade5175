import { readKey } from '../../chaos/journal/head.ts'
import type { Env } from '../../config/files/interpolate.ts'
import {
  journalFolder,
  keptRecords,
  type KeptRecord,
  RunJournal,
  verifyRuns,
} from '../../evidence/journal.ts'
import { type Limit, prunable, type Prunable } from '../../evidence/prune.ts'
import { lockState } from '../../gateway/state-lock.ts'
import { systemClock } from '../../mesh/clock.ts'
import { numbered } from '../../units/numbered.ts'
import { Misuse, type Output, UnusableInput } from '../shared/arguments.ts'
import type { Values } from '../shared/control-command.ts'
import { endingInOrder } from '../shared/signals.ts'
import { stateFolder, storedRuns, type Where } from './stored-runs.ts'

/** The longest age, in milliseconds: ten years. */
const MAX_AGE_MS = 10 * 365 * 86_400_000

export const pruneOptions = {
  keep: {
    kind: 'integer',
    value: 'N',
    about: 'keeps the records of the newest N runs, and removes the others',
  },
  older: {
    kind: 'duration',
    max: MAX_AGE_MS,
    value: 'AGE',
    about: 'removes the records of runs that ended longer ago, such as 90d',
  },
  'dry-run': { kind: 'flag', about: 'prints the records to remove, and removes nothing' },
} as const

interface Asked {
  readonly values: Values & Where
  readonly out: Output
  readonly env: Env
}

/**
 * `breakwater runs prune`: removes the oldest records of runs, and no summary. Holds the lock of the state folder.
 * Resolves to the exit code.
 */
export async function prune({ values, out, env }: Asked): Promise<number> {
  const limit = limitIn(values)
  const stateDir = await stateFolder(values, env)
  const key = await readKey(stateDir)
  if (key === undefined) throw new UnusableInput(`${stateDir} has no runs`)
  return endingInOrder(async (_stop, closing) => {
    const lock = await lockState(stateDir).catch((error: Error) => {
      throw new UnusableInput(error.message)
    })
    closing.push(() => lock.release())
    const folder = journalFolder(stateDir)
    const all = await keptRecords(folder, key)
    if (all.length > 0) await requireWhole(folder, key)
    const summarised = new Set<string>()
    const { runs } = await storedRuns(values, { env, out }, { fields: ['id'] })
    for (const { id } of runs) summarised.add(id)
    const found = prunable(all, limit, (id) => summarised.has(id))
    const isDry = values['dry-run'] === true
    if (values.json !== true) for (const line of linesOf(found, all.length)) out.stdout(line)
    if (!isDry && found.records.length > 0) {
      const { journal } = await RunJournal.open(folder, key)
      await journal.prune(found.records.length)
    }
    const { records, unsummarised = null } = found
    const kept = all.length - records.length
    if (values.json === true)
      out.stdout(JSON.stringify({ removed: !isDry, records, kept, unsummarised }, undefined, 2))
    else if (!isDry) out.stdout(`removed ${numbered(records.length, 'record')}; the summaries are kept`)
    return 0
  })
}

/** Throws a `Misuse`. */
function limitIn({ keep, older }: Values): Limit {
  if ((keep === undefined) === (older === undefined)) throw new Misuse('prune needs --keep N or --older AGE')
  return typeof keep === 'number' ? { keep } : { endedAfter: systemClock.wall() - Number(older) }
}

/** Rejects with an `UnusableInput` for a journal with problems: the removed records might be their only proof. */
async function requireWhole(...journal: Parameters<typeof verifyRuns>): Promise<void> {
  const { problems } = await verifyRuns(...journal)
  if (problems.length === 0) return
  const found = problems.map(({ file, why }) => `${file} ${why}`)
  throw new UnusableInput(`the journal has problems, so no record is removed:\n${found.join('\n')}`)
}

function linesOf({ records, unsummarised }: Prunable, all: number): readonly string[] {
  return [
    ...records.map((record) => `removes ${wordsOf(record)}: ${record.file}`),
    `${numbered(records.length, 'record')} to remove, ${all - records.length} to keep`,
    ...(unsummarised === undefined
      ? []
      : [
          `${wordsOf(unsummarised)} is not in the index, so this record and the later ones stay: a gateway adds the run when the gateway starts`,
        ]),
  ]
}

const wordsOf = ({ id, name, endedAt }: KeptRecord) =>
  `${name} (${id}), ended ${new Date(endedAt).toISOString()}`
