import type { Section, Signed } from '../evidence/signed-document.ts'
import { signatureInWords } from '../evidence/signed-document.ts'
import { verdicts } from '../evidence/verdict-names.ts'
import { valueInWords } from '../claims/judge.ts'
import { subjects } from '../claims/subjects.ts'
import type { Block, Cell } from '../experiments/blocks.ts'
import { formatDuration, roundedDuration } from '../units/duration.ts'
import { firstOf, numbered } from '../units/numbered.ts'
import type { ChangedExperiment, ExperimentReport, GameDayReport, Outcome } from './report-shape.ts'

/** Shown for unknown values. */
const NONE = '–'

const minuteOf = (moment: string): string => `${moment.slice(0, 10)} ${moment.slice(11, 16)} UTC`
const secondOf = (moment: string): string => `${moment.slice(0, 10)} ${moment.slice(11, 19)}`
const msOf = (value: number | null): string => (value === null ? NONE : roundedDuration(value))

export const titleOf = ({ gameDay: { title } }: GameDayReport): string => `GameDay report: ${title}`

/** Returns the result in one sentence of counts. */
export function countsInWords({ result }: GameDayReport): string {
  const { experiments, notRun, rtoMet, rtoPromised, worstRecoveryMs, notRecovered } = result
  const counts = verdicts.map((verdict) => `${result.verdicts[verdict]} ${verdict}`)
  return [
    `${numbered(experiments, 'experiment')}: ${[...counts, `${notRun} not run`].join(', ')}`,
    rtoPromised === 0
      ? 'no recovery time was promised'
      : `recovered in the promised time: ${rtoMet} of ${rtoPromised}`,
    `worst recovery: ${worstRecoveryMs === null ? 'none measured' : roundedDuration(worstRecoveryMs)}${notRecovered === 0 ? '' : `, and ${numbered(notRecovered, 'experiment')} without a recovery`}`,
    `open actions: ${result.openActions}${result.overdueActions === 0 ? '' : `, of which ${result.overdueActions} overdue`}`,
  ].join('; ')
}

/** Returns the sections of a report, in order, for any format. */
export function sectionsOf({ report, signature }: Signed<GameDayReport>): readonly Section[] {
  const { objective, gameDay, scenario, participants, timeline, experiments, gaps, actions, limits } = report
  return [
    { title: 'Result', blocks: [`${countsInWords(report)}.`, { list: resultLines(report) }] },
    {
      title: 'Objective',
      blocks: [
        objective.hypothesis,
        {
          list: [
            `scope: ${firstOf(objective.servers)}`,
            `environment: ${gameDay.environment}`,
            objective.rtoMs === null
              ? 'promised recovery time: as each experiment says'
              : `promised recovery time: ${formatDuration(objective.rtoMs)}, unless an experiment has its own`,
          ],
        },
      ],
    },
    { title: 'Scenario', blocks: [scenarioTable(scenario)] },
    {
      title: 'Participants',
      blocks: [
        tableOf(
          ['role', 'who'],
          participants.map(({ role, who }) => [role, who]),
        ),
        `Begun by ${gameDay.by}${gameDay.isOfAgent ? ', an agent' : ''}.`,
      ],
    },
    { title: 'Communication', blocks: [{ list: communicationLines(report) }] },
    { title: 'Results of the experiments', blocks: [resultTable(experiments)] },
    ...experiments.map((one) => ({ title: `Experiment ${one.name}`, blocks: blocksOf(one) })),
    { title: 'Changes since the earlier GameDay', blocks: changeBlocks(report) },
    {
      title: 'Gaps',
      blocks: [
        gaps.length === 0
          ? 'None was found.'
          : {
              list: gaps.map(({ experiment, text }) =>
                experiment === null ? text : `${experiment}: ${text}`,
              ),
            },
      ],
    },
    { title: 'Actions', blocks: [actions.length === 0 ? 'None was recorded.' : actionTable(actions)] },
    {
      title: 'Timeline',
      blocks: [
        tableOf(
          ['at (UTC)', 'what', 'by', 'text'],
          timeline.map(({ at, what, by, text }) => [secondOf(at), what, by ?? NONE, text]),
        ),
      ],
    },
    { title: 'Limits', blocks: [{ list: limits }] },
    {
      title: 'Origin',
      blocks: [
        {
          list: [
            `GameDay ${gameDay.id}, plan ${gameDay.plan}, shape ${gameDay.shape}`,
            `run by Breakwater ${gameDay.version}`,
            `made at ${report.madeAt} by Breakwater ${report.version}`,
            signatureInWords(signature),
          ],
        },
      ],
    },
  ]
}

const tableOf = (head: readonly string[], rows: readonly (readonly Cell[])[], numbers = Infinity): Block => ({
  table: { head, rows, numbers },
})

function resultLines({ gameDay }: GameDayReport): string[] {
  const { state, reason, startedAt, endedAt, pausedMs } = gameDay
  return [
    `${state}: ${reason}`,
    endedAt === null
      ? `from ${minuteOf(startedAt)} on`
      : `from ${minuteOf(startedAt)} to ${minuteOf(endedAt)}`,
    `paused for ${pausedMs === 0 ? 'no time' : roundedDuration(pausedMs)}`,
  ]
}

const scenarioTable = (scenario: GameDayReport['scenario']): Block =>
  tableOf(
    ['experiment', 'faults', 'owner', 'reason', 'after', 'meant for'],
    scenario.map(({ name, title, owner, reason, afterMs, faults, supports }) => [
      title === null ? name : `${name}: ${title}`,
      faults.length === 0 ? 'none: two policy sets' : firstOf(faults.map(({ type }) => type)),
      owner,
      reason,
      afterMs === 0 ? 'at once' : formatDuration(afterMs),
      supports.length === 0 ? NONE : firstOf(supports),
    ]),
  )

function communicationLines({ communication }: GameDayReport): string[] {
  const { before, during, webhook } = communication
  return [
    `before: ${before ?? 'not planned'}`,
    `during: ${during ?? 'not planned'}`,
    `notices: ${webhook === null ? 'none' : `webhook ${webhook}`}`,
  ]
}

const rtoInWords: Readonly<Record<Outcome['rto'], string>> = {
  met: 'in time',
  missed: 'too late',
  open: 'not recovered',
  'no promise': 'no promise',
  'not proven': NONE,
}

const verdictInWords = ({ verdict }: Outcome): string => verdict ?? 'not run'

/** Emphasizes what needs attention. */
const flagged = (text: string, isFlagged: boolean): Cell => (isFlagged ? { bold: text } : text)

const verdictCell = (outcome: Outcome): Cell =>
  flagged(verdictInWords(outcome), outcome.verdict !== 'passed' && outcome.verdict !== 'held (weak)')

const rtoCell = ({ rto }: Outcome): Cell => flagged(rtoInWords[rto], rto === 'missed' || rto === 'open')

const resultTable = (experiments: readonly ExperimentReport[]): Block =>
  tableOf(
    ['experiment', 'verdict', 'because', 'recovered after', 'promised', 'recovery', 'run'],
    experiments.map((one) => [
      one.name,
      verdictCell(one),
      one.reasons.length > 0 ? one.reasons.join(', ') : (one.why ?? (one.note || NONE)),
      msOf(one.recoveredMs),
      msOf(one.promisedMs),
      rtoCell(one),
      one.verdict === null ? NONE : (one.runs.at(-1)?.id ?? NONE),
    ]),
  )

function blocksOf(one: ExperimentReport): Block[] {
  const { state, note, why, approver, approverProof, runs, claims, faults, endedAt } = one
  const interrupted = one.verdict === null ? runs : runs.slice(0, -1)
  return [
    {
      list: [
        `${verdictInWords(one)}${one.reasons.length === 0 ? '' : `: ${one.reasons.join(', ')}`}`,
        ...(why === null ? [`${state}${note === '' ? '' : `: ${note}`}`] : [`end: ${why}`]),
        ...(endedAt === null ? [] : [`ended at ${minuteOf(endedAt)}`]),
        ...(one.verdict === null ? [] : [approvalInWords(approver, approverProof)]),
        ...(interrupted.length === 0
          ? []
          : [`interrupted runs, which show nothing: ${firstOf(interrupted.map(({ id }) => id))}`]),
      ],
    },
    ...(claims.length === 0 ? [] : [claimTable(claims)]),
    ...(faults.length === 0 ? [] : [faultTable(faults)]),
  ]
}

function approvalInWords(approver: string | null, proof: string | null): string {
  if (approver === null) return 'not approved by anybody: the run needed no approval'
  return `approved by ${approver}, ${proof === 'key' ? 'proved by a key' : 'a claimed name'}`
}

/** Returns a measured value in the unit of its claim, whose text begins with the subject. */
function measured(claim: string, value: number | null): string {
  const [word = ''] = /^\w+/.exec(claim) ?? []
  if (value === null) return NONE
  return isSubject(word) ? valueInWords(subjects[word].unit, value) : String(Number(value.toPrecision(4)))
}

const isSubject = (word: string): word is keyof typeof subjects => Object.hasOwn(subjects, word)

function intervalInWords(claim: string, low: number | null, high: number | null): string {
  if (low === null) return NONE
  return high === null
    ? `from ${measured(claim, low)}`
    : `${measured(claim, low)} to ${measured(claim, high)}`
}

const claimTable = (claims: ExperimentReport['claims']): Block =>
  tableOf(
    ['claim', 'status', 'measured', '95 % interval', 'calls'],
    claims.map(({ text, status, value, low, high, n }) => [
      text,
      flagged(status.replaceAll('_', ' '), status === 'failed'),
      measured(text, value),
      intervalInWords(text, low, high),
      n,
    ]),
    4,
  )

const faultTable = (faults: ExperimentReport['faults']): Block =>
  tableOf(
    ['fault', 'type', 'took effect', 'masked', 'delayed', 'surfaced', 'escaped', 'not reached'],
    faults.map(({ name, type, applied, masked, delayed, surfaced, escaped, notReached }) => [
      name,
      type,
      applied,
      masked,
      delayed,
      surfaced,
      escaped,
      notReached,
    ]),
    2,
  )

function changeBlocks({ comparison }: GameDayReport): Block[] {
  if (comparison === null) return ['No earlier GameDay is stored, so nothing is compared.']
  const { id, name, startedAt, state, experiments } = comparison
  return [
    `Compared with ${name} (${id}) of ${minuteOf(startedAt)}, which is ${state}. Only experiments with the same plan are compared.`,
    tableOf(
      ['experiment', 'change', 'verdict before', 'verdict now', 'recovery before', 'recovery now'],
      experiments.map(changeRow),
    ),
  ]
}

function changeRow({ name, notComparable, before, now, change }: ChangedExperiment): Cell[] {
  const recovery = (outcome: Outcome | null) =>
    outcome === null ? NONE : `${msOf(outcome.recoveredMs)} (${rtoInWords[outcome.rto]})`
  return [
    name,
    change === null ? `not comparable: ${notComparable}` : flagged(change, change === 'worse'),
    before === null ? NONE : verdictInWords(before),
    now === null ? NONE : verdictInWords(now),
    recovery(before),
    recovery(now),
  ]
}

const actionTable = (actions: GameDayReport['actions']): Block =>
  tableOf(
    ['number', 'action', 'owner', 'due', 'state'],
    actions.map(({ number, what, owner, due, state, doneAt, doneBy }) => [
      String(number),
      what,
      owner,
      due ?? 'no date',
      doneAt === null
        ? flagged(state, state === 'overdue')
        : `done on ${doneAt.slice(0, 10)} by ${doneBy ?? NONE}`,
    ]),
  )
