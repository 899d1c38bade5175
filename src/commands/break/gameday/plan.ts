import { valueInWords } from '../../../claims/judge.ts'
import { subjects } from '../../../claims/subjects.ts'
import type { Plan } from '../../../experiments/guarded/guarded.ts'
import { lengthOf } from '../../../experiments/guarded/spec.ts'
import type { GameDayPlan } from '../../../gamedays/plan.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { readGameDay, type ReadGameDay } from '../../../gateway/gameday-file.ts'
import { printable } from '../../../telemetry/printable.ts'
import { formatDuration, roundedDuration } from '../../../units/duration.ts'
import { numbered } from '../../../units/numbered.ts'
import { UnusableInput } from '../../shared/arguments.ts'
import { ask, type Command } from '../../shared/control-command.ts'
import { people, person, planLines } from '../experiment/guarded.ts'

/** The answer of `/admin/gamedays/plan`. */
interface Preview {
  readonly name: string
  readonly refusals: readonly string[]
  readonly experiments: readonly (Plan & { readonly after: Millis })[]
}

/** The option with the name of a person. */
export const by = { by: people.by } as const

/** Reads a GameDay from a file. Rejects with an `UnusableInput`. */
export async function readUsable(file: string): Promise<ReadGameDay & { readonly ok: true }> {
  const read = await readGameDay(file)
  if (!read.ok) throw new UnusableInput(read.problems.map((problem) => printable(problem)).join('\n'))
  return read
}

export const validate: Command = {
  positionals: ['FILE'],
  async run({ positionals: [file = ''], out }) {
    const { name, experiments } = (await readUsable(file)).plan
    const words = `GameDay ${name}, ${numbered(experiments.length, 'experiment')}`
    out.stdout(printable(`${file}: ${words}, ${roundedDuration(lengthOfAll(experiments))} plus recoveries`))
    return 0
  },
}

export const plan: Command = {
  positionals: ['FILE'],
  options: by,
  async run(given) {
    const { written, plan } = await readUsable(given.positionals[0] ?? '')
    const body = { plan: written, by: person(given) }
    let isRefused = false
    const code = await ask(
      given,
      { method: 'POST', path: '/admin/gamedays/plan', body },
      (answer: Preview) => {
        isRefused = [answer, ...answer.experiments].some(({ refusals }) => refusals.length > 0)
        return previewLines(plan, answer, given.width)
      },
    )
    return code === 0 && isRefused ? 1 : code
  },
}

/** Returns the time of all baselines, stages and pauses before experiments. */
const lengthOfAll = (experiments: GameDayPlan['experiments']): Millis =>
  experiments.reduce((sum, { spec, after }) => sum + lengthOf(spec) + after, 0)

function previewLines(plan: GameDayPlan, { refusals, experiments }: Preview, width: number): string[] {
  const approvals = experiments.filter(({ waitsBecause }) => waitsBecause !== undefined)
  return [
    `${plan.name}: ${plan.title}`,
    `${numbered(experiments.length, 'experiment')}, ${roundedDuration(lengthOfAll(plan.experiments))} plus recoveries`,
    ...Object.entries(plan.roles).map(([role, who]) => `${role}: ${who}`),
    ...announcements(plan),
    ...stopWords(plan).map((words) => `stops on: ${words}`),
    'pauses on: a refusal, or the end of a run by a person or the kill switch',
    ...experiments.flatMap((one, at) => [
      '',
      ...(one.after === 0 ? [] : [`after a pause of ${formatDuration(one.after)}:`]),
      ...planLines(one, width),
      ...supportWords(plan, at),
    ]),
    '',
    ...(approvals.length === 0 ? [] : [`approvals needed: ${approvals.map(({ name }) => name).join(', ')}`]),
    ...refusals.map((refusal) => `the GameDay is refused: ${refusal}`),
    'nothing was injected',
  ]
}

const supportWords = ({ experiments }: GameDayPlan, at: number): string[] => {
  const supports = experiments[at]?.supports ?? []
  return supports.length === 0 ? [] : [`meant for: ${supports.join(', ')}`]
}

/** Returns the lines about the announcement, and about the place where people talk. */
export const announcements = ({ communication: { before, during } }: GameDayPlan): string[] => [
  ...(before === undefined ? [] : [`announce before: ${before}`]),
  ...(during === undefined ? [] : [`talk during: ${during}`]),
]

function stopWords({ stop, scope }: GameDayPlan): string[] {
  const outside = `outside of ${scope.servers.join(', ')}`
  return [
    ...(stop.incidents ? [`a new incident of a server ${outside}`] : []),
    ...stop.neighbours.map(({ metric, above, for: forMs }) => {
      const long = forMs === 0 ? '' : ` for ${formatDuration(forMs)}`
      return `${metric} of the servers ${outside} above ${valueInWords(subjects[metric].unit, above)}${long}`
    }),
  ]
}
