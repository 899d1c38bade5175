import { markdownBlock, markdownLine } from '../experiments/blocks.ts'
import { decimalsFor, differenceInWords, intervalInWords, valueInWords } from '../experiments/report-text.ts'
import type { Interval } from '../experiments/statistics/unit-estimates.ts'
import { roundedDuration } from '../units/duration.ts'
import { type Comparison, type Figure, figures, type Told } from './replay-figures.ts'

export interface ReplayReport extends Comparison {
  readonly file: string
  /** Start of the recording, in ISO 8601. */
  readonly startedAt: string
  /** Time from the first call to the last call, in milliseconds. */
  readonly ranMs: number
  readonly calls: number
  readonly tasks: number
  /** Number of plays under each policy choice, and the seed of the first play. */
  readonly plays: number
  readonly seed: number
  /** Share of the attempts drawn without a recorded counterpart, by the policies' name. */
  readonly drawn: Readonly<Record<string, number>>
  /** Notes for the reader about the recording and the policies. */
  readonly notes: readonly string[]
  /** Questions that a replay cannot answer. */
  readonly limits: readonly string[]
}

/** Limits of every replay. */
export const limits: readonly string[] = [
  'Attempts without a recorded counterpart are drawn from recorded attempts; their real duration is unknown.',
  'Under other policies, servers would have had another load and answered sooner or later.',
  'Agents would have reacted to other outcomes with other calls; the replay repeats the recorded calls.',
  'Arguments and replies were not recorded: fallback calls to another tool fail, and `arguments` and `verdict` repeat their recorded findings.',
  'Effects of faults during the recording count as behaviour of the servers.',
]

export function replayMarkdown(report: ReplayReport): string {
  const { file, startedAt, ranMs, calls, tasks, plays, seed, recorded, replayed, difference } = report
  const columns = [recorded, ...replayed]
  const row = (name: string, of: (told: Told) => Interval | undefined, unit: Unit) => [
    name,
    ...columns.map((told) => cell(of(told), unit)),
    ...(difference === undefined ? [] : [differenceCell(of(difference), unit)]),
  ]
  const rows = (Object.keys(figures) as Figure[]).map((figure) =>
    row(figures[figure].name, (told) => told.figures[figure], figures[figure].unit),
  )
  const rejections = Object.keys(recorded.rejections).map((reason) =>
    row(`rejected: ${reason}`, (told) => told.rejections[reason], 'points'),
  )
  const head = [
    '',
    ...columns.map(({ name }) => name),
    ...(difference === undefined ? [] : [difference.name]),
  ]
  return [
    `# Replay of ${calls} recorded calls`,
    `Recorded from ${startedAt} on, for ${roundedDuration(ranMs)}: ${calls} calls of ${tasks} tasks in ${file}. Played ${plays} times under each of the policies, from seed ${seed} on.`,
    ...(report.notes.length === 0 ? [] : [list(report.notes)]),
    markdownBlock({ table: { head, rows: [...rows, ...rejections], numbers: 1 } }),
    'In brackets: 95 % confidence intervals of the recording and of the difference; 95 % prediction intervals of the replay, for another live run of as many tasks. Rejections, including rejected retries, are a share of the calls.',
    '## What a replay cannot know',
    list([
      ...Object.entries(report.drawn).map(
        ([name, share]) => `${valueInWords(share, 'points')} of the attempts under ${name} were drawn.`,
      ),
      ...report.limits,
    ]),
  ].join('\n\n')
}

/** Figures named by `differencesInWords`. */
const inShort: readonly Figure[] = ['tcsr', 'p95', 'attempts']

/** Returns the main differences between the two policies in one line; undefined for a replay of one. */
export function differencesInWords({ difference }: ReplayReport): string | undefined {
  if (difference === undefined) return undefined
  const rejections = Object.entries(difference.rejections).filter(([, { estimate }]) => estimate !== 0)
  return [
    ...inShort.map((figure) => {
      const { name, unit } = figures[figure]
      return `${name} ${differenceCell(difference.figures[figure], unit)}`
    }),
    ...rejections.map(([reason, interval]) => `rejected by ${reason} ${differenceCell(interval, 'points')}`),
  ].join(', ')
}

type Unit = (typeof figures)[Figure]['unit']

const list = (lines: readonly string[]) => lines.map((line) => `- ${markdownLine(line)}`).join('\n')

function cell(interval: Interval | undefined, unit: Unit): string {
  if (interval === undefined) return ''
  const places = decimalsFor(interval, unit)
  const [low, high] = [interval.low, interval.high].map((value) => valueInWords(value, unit, places))
  return `${valueInWords(interval.estimate, unit, places)} (${low} to ${high})`
}

function differenceCell(interval: Interval | undefined, unit: Unit): string {
  if (interval === undefined) return ''
  const places = decimalsFor(interval, unit)
  return `${differenceInWords(interval.estimate, unit, places)} (${intervalInWords(interval, unit, places)})`
}
