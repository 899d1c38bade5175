import { fates } from '../mesh/injected.ts'
import { roundedDuration } from '../units/duration.ts'
import { type Block, markdownBlock, markdownLine, type Table } from './blocks.ts'
import type { Look } from './experiments.ts'
import { metricOf } from './metrics.ts'
import type { MetricReport, Report } from './report.ts'
import { armInWords } from './schema.ts'
import { decimals, percentage, pInWords, sizeInWords } from './statistics/sentences.ts'

/** A number of a report. JSON turns non-finite numbers into null. */
export type Told = number | null | undefined

export const isKnown = (value: Told): value is number => typeof value === 'number' && Number.isFinite(value)

const NONE = '–'

/** Shown when all values were the same: without variance there is no interval. */
const CONSTANT = 'none: no value varied'

/** Decimals by unit: fewest, most, and the number for values of unknown precision. */
const exactness = {
  points: { least: 1, most: 2, usual: 1 },
  ms: { least: 0, most: 2, usual: 1 },
  count: { least: 2, most: 3, usual: 2 },
} as const

type Unit = MetricReport['unit']

/** Returns the decimals needed to tell the ends of an interval apart. */
export function decimalsFor({ low, high }: { readonly low: Told; readonly high: Told }, unit: Unit): number {
  const { least, most, usual } = exactness[unit]
  if (!isKnown(low) || !isKnown(high) || low === high) return usual
  return Math.max(least, Math.min(most, decimals({ unit }, (high - low) / 2)))
}

/** Returns the decimals of a metric of a treatment. All shares get the same number, so their columns align. */
export function decimalsOf(metric: MetricReport, treatment: string, all: readonly MetricReport[]): number {
  const { unit } = metric
  const alike = unit === 'points' ? all.filter((other) => other.unit === unit) : [metric]
  return Math.max(...alike.map(({ differences }) => decimalsFor(differences[treatment]!, unit)))
}

/** Returns a value for people: `93.4 %`, `12.3 ms`, `1.04`; a dash when unknown. */
export function valueInWords(value: Told, unit: Unit, places: number = exactness[unit].usual): string {
  if (!isKnown(value)) return NONE
  if (unit === 'points') return `${(100 * value).toFixed(places)} %`
  return unit === 'ms' ? `${value.toFixed(places)} ms` : value.toFixed(places)
}

/** Returns a difference with its sign: `+4.1 points`, `−12 ms`, `0.00`; a dash when unknown. */
export function differenceInWords(value: Told, unit: Unit, places: number = exactness[unit].usual): string {
  if (!isKnown(value)) return NONE
  const signed = signedDigits(value, unit, places)
  return unit === 'count' ? signed : `${signed} ${unit}`
}

/** Returns an interval: `+2.0 to +6.1 points`; a dash when unknown. */
export function intervalInWords(
  { low, high }: { readonly low: Told; readonly high: Told },
  unit: Unit,
  places = decimalsFor({ low, high }, unit),
): string {
  if (!isKnown(low) || !isKnown(high)) return NONE
  if (low === high) return CONSTANT
  return `${signedDigits(low, unit, places)} to ${differenceInWords(high, unit, places)}`
}

function signedDigits(value: number, unit: Unit, places: number): string {
  const digits = Math.abs(unit === 'points' ? 100 * value : value).toFixed(places)
  const sign = Number(digits) === 0 ? '' : value > 0 ? '+' : '−'
  return `${sign}${digits}`
}

const results = {
  better: 'better',
  worse: 'worse',
  no_difference_found: 'no difference found',
  inconclusive: 'inconclusive',
  invalid: 'invalid',
} as const

/** Returns the verdict as a label of one to three words, and its sentence. */
export function verdictInWords({ state, verdict }: Pick<Report, 'state' | 'verdict'>): {
  readonly label: string
  readonly sentence: string
} {
  if (verdict === undefined) return { label: 'not started', sentence: 'The experiment has not run.' }
  const isOpen = state === 'running' && verdict.result === 'inconclusive'
  const harms = verdict.result === 'worse' && verdict.harm
  const label = isOpen ? 'not decided yet' : harms ? 'harm' : results[verdict.result]
  return { label, sentence: `${withoutLabel(verdict.sentence)}.` }
}

/** Removes the result in front of a verdict's sentence. */
export const withoutLabel = (sentence: string): string =>
  sentence.replace(/^(invalid|inconclusive|not decided yet|no difference found): /, '')

/** Returns an ISO 8601 time as text, such as `2026-03-01 09:30:00 UTC`. */
const instantInWords = (iso = '') => iso.replace(/^(.{10})T(.{8}).*$/, '$1 $2 UTC')

/** Returns when the experiment ran, and why it ended; undefined before the start. */
export function ranInWords({ state, startedAt, endedAt, endedBecause, ranMs }: Report): string | undefined {
  if (state === 'not_started') return undefined
  const lasting = `for ${roundedDuration(ranMs ?? 0)}`
  if (state === 'running') return `Running since ${instantInWords(startedAt)}, ${lasting}.`
  return `Ran from ${instantInWords(startedAt)} to ${instantInWords(endedAt)}, ${lasting}: ${endedBecause}.`
}

/**
 * Returns the entry of a record for an arm; undefined for none. The name of an arm may be a property of all objects,
 * such as `constructor`.
 */
export const ofArm = <T>(record: Readonly<Record<string, T>>, arm: string): T | undefined =>
  Object.hasOwn(record, arm) ? record[arm] : undefined

export const treatmentsOf = ({ arms, control }: Pick<Report, 'arms' | 'control'>): string[] =>
  armsIn({ arms }).filter((arm) => arm !== control)

const armsIn = ({ arms }: Pick<Report, 'arms'>): string[] => arms.map(({ name }) => name)

const nameIn = (arms: Report['arms'], arm: string): string =>
  armInWords({ arms: Object.fromEntries(arms.map(({ name, set }) => [name, set])) }, arm)

export const decisiveOf = ({ metrics }: Pick<Report, 'metrics'>): MetricReport =>
  metrics.find(({ decides }) => decides)!

export type SectionName =
  | 'hypothesis'
  | 'arms'
  | 'settings'
  | 'effect'
  | 'exposure'
  | 'metrics'
  | 'cost'
  | 'faults'
  | 'assignment'
  | 'shared'
  | 'next'

export interface Section {
  readonly name: SectionName
  readonly title: string
  readonly blocks: readonly Block[]
}

/** Returns the sections of a report below its verdict, in order, for any output format. */
export function sectionsOf(report: Report): Section[] {
  const { state, hypothesis, interference, next } = report
  const ran: Section[] = [
    { name: 'effect', title: 'Effect over time', blocks: effectBlocks(report) },
    { name: 'exposure', title: 'Exposure', blocks: exposureBlocks(report) },
    { name: 'metrics', title: 'Metrics', blocks: metricBlocks(report) },
    { name: 'cost', title: 'Cost', blocks: treatmentsOf(report).map((arm) => costInWords(report, arm)) },
    { name: 'faults', title: 'Faults', blocks: faultBlocks(report) },
    { name: 'assignment', title: 'Assignment', blocks: assignmentBlocks(report) },
  ]
  return [
    { name: 'hypothesis', title: 'Hypothesis', blocks: [hypothesis] },
    { name: 'arms', title: 'Arms', blocks: [{ table: armTable(report) }] },
    {
      name: 'settings',
      title: 'Settings that differ',
      blocks: [settingBlock(report.settings, armsIn(report))],
    },
    ...(state === 'not_started' ? [] : ran),
    { name: 'shared', title: 'Shared by the arms', blocks: [{ list: interference }] },
    { name: 'next', title: 'Next steps', blocks: [next] },
  ]
}

function armTable({ arms, control }: Report): Table {
  return {
    head: ['arm', 'policy set', 'share', 'assigned', 'units', 'outcomes reported'],
    rows: arms.map(({ name, set, share, assigned, units, reported }) => [
      name === control && name !== 'control' ? `${name} (control)` : name,
      set,
      `${Number((100 * share).toFixed(2))} %`,
      assigned,
      units,
      reported,
    ]),
    numbers: 2,
  }
}

/** Returns the differing settings, a line per setting. */
export function settingBlock(settings: Report['settings'], arms: readonly string[]): Block {
  if (settings.length === 0) return 'The arms have the same settings.'
  return {
    table: {
      head: ['setting', ...arms],
      rows: settings.map(({ setting, byArm }) => [setting, ...arms.map((arm) => ofArm(byArm, arm) ?? NONE)]),
      numbers: Infinity,
    },
  }
}

/** Maximum number of lines of a table over time. */
const SHOWN_LOOKS = 12

/** Returns evenly spaced looks, including the last look. */
function shownLooks(looks: readonly Look[]): readonly Look[] {
  const step = Math.max(1, Math.ceil(looks.length / SHOWN_LOOKS))
  return looks.filter((_, at) => (looks.length - 1 - at) % step === 0)
}

const NO_LOOKS = 'There were no looks yet.'

function effectBlocks(report: Report): Block[] {
  const { looks, metric, minimumEffect, confidence } = report
  if (looks.length === 0) return [NO_LOOKS]
  if (metricOf(metric).estimator.kind === 'quantile')
    return ['Quantiles have no confidence sequence, so they are judged only at the end.']
  const treatments = treatmentsOf(report)
  const { unit } = decisiveOf(report)
  const several = treatments.length > 1
  const small =
    minimumEffect > 0 ? ` Differences within ±${sizeInWords({ unit }, minimumEffect)} do not matter.` : ''
  return [
    `The difference of ${metric}, ${treatments.map((arm) => nameIn(report.arms, arm)).join(' or ')} minus ${nameIn(report.arms, report.control)}, with its confidence sequence, valid at all looks together (${percentage(Number(confidence.toPrecision(3)))}).${small}`,
    {
      table: {
        head: [
          'after',
          ...treatments.flatMap((arm) =>
            several ? [`${arm}: difference`, `${arm}: sequence`] : ['difference', 'sequence'],
          ),
        ],
        rows: shownLooks(looks).map(({ atMs, byTreatment, assumed }) => [
          assumed === undefined
            ? roundedDuration(atMs)
            : `${roundedDuration(atMs)}, the end of ${assumed} assumed`,
          ...treatments.flatMap((arm) => {
            const found = ofArm(byTreatment, arm) ?? { difference: NaN, low: NaN, high: NaN }
            const places = decimalsFor(found, unit)
            return [differenceInWords(found.difference, unit, places), intervalInWords(found, unit, places)]
          }),
        ]),
        numbers: 1,
      },
    },
  ]
}

function exposureBlocks({ looks, arms, minimumUnits }: Report): Block[] {
  if (looks.length === 0) return [NO_LOOKS]
  return [
    `Finished units of each arm. Each arm needs ${minimumUnits} before the verdict may end the experiment.`,
    {
      table: {
        head: ['after', ...arms.map(({ name }) => name)],
        rows: shownLooks(looks).map(({ atMs, units }) => [
          roundedDuration(atMs),
          ...arms.map(({ name }) => ofArm(units, name) ?? 0),
        ]),
        numbers: 1,
      },
    },
  ]
}

function metricBlocks(report: Report): Block[] {
  const treatments = treatmentsOf(report)
  return [
    'The 95 % intervals are valid for a single look; the verdict uses a sequence valid at all looks together. The p-values are adjusted for all metrics (Holm), so they may exceed 0.05 where the interval excludes 0. The metric in bold decides.',
    ...treatments.flatMap((treatment): Block[] => [
      ...(treatments.length > 1 ? [{ heading: `${treatment} against ${report.control}` }] : []),
      { table: metricTable(report, treatment) },
    ]),
  ]
}

function metricTable({ metrics, control }: Report, treatment: string): Table {
  return {
    head: ['metric', control, treatment, 'difference', '95 % interval', 'adjusted p'],
    rows: metrics.map((metric) => {
      const { name, unit, decides, values, differences } = metric
      const difference = differences[treatment]!
      const places = decimalsOf(metric, treatment, metrics)
      return [
        decides ? { bold: name } : name,
        valueInWords(values[control], unit, places),
        valueInWords(values[treatment], unit, places),
        differenceInWords(difference.estimate, unit, places),
        intervalInWords(difference, unit, places),
        smallNumber(difference.adjustedP),
      ]
    }),
    numbers: 1,
  }
}

const smallNumber = (p: Told) => (!isKnown(p) ? NONE : p < 0.001 ? '< 0.001' : p.toFixed(3))

/** Returns the cost of a treatment: attempts at servers, and time. */
function costInWords({ arms, metrics, control }: Report, treatment: string): string {
  const of = (name: MetricReport['name']) => {
    const { unit, values, differences } = metrics.find((metric) => metric.name === name)!
    const difference = differences[treatment]!
    return { unit, values, difference, places: decimalsFor(difference, unit) }
  }
  const [tries, time] = [of('attempts_per_call'), of('mean_ms')]
  const added = time.difference.estimate as Told
  if (!isKnown(tries.difference.estimate) || !isKnown(added))
    return `The cost of ${nameIn(arms, treatment)} is not known yet.`
  const triesOf = (arm: string) => valueInWords(tries.values[arm], tries.unit, tries.places)
  const change = differenceInWords(tries.difference.estimate, tries.unit, tries.places)
  const interval = intervalInWords(time.difference, time.unit, time.places)
  const within = interval === NONE ? '' : ` (95 % interval ${interval})`
  const [name, other] = [nameIn(arms, treatment), nameIn(arms, control)]
  return `With ${name}, a call takes ${triesOf(treatment)} attempts at servers (${triesOf(control)} with ${other}, difference ${change}), and ${longer(added, time.places)} on average${within}.`
}

function longer(ms: number, places: number): string {
  const size = Math.abs(ms).toFixed(places)
  return Number(size) === 0 ? 'as long' : `${size} ms ${ms > 0 ? 'longer' : 'less'}`
}

/** Returns the name of a fate as words: `not reached` for `not_reached`. */
export const fateInWords = (fate: string): string => fate.replaceAll('_', ' ')

/** Returns the faults of an arm by fate, in the order of `fates`. */
export const fateCounts = (report: Pick<Report, 'fates'>, arm: string): number[] =>
  fates.map((fate) => ofArm(report.fates, arm)?.[fate] ?? 0)

function faultBlocks(report: Report): Block[] {
  const { arms } = report
  const rows = arms.map(({ name }) => [name, ...fateCounts(report, name)])
  if (rows.every(([, ...counts]) => counts.every((count) => count === 0)))
    return ['No fault hit a call of the experiment.']
  return [
    'Fates of the injected faults, by arm.',
    { table: { head: ['arm', ...fates.map(fateInWords)], rows, numbers: 1 } },
  ]
}

function assignmentBlocks({ arms, calls, sampleRatioP }: Report): Block[] {
  const counts = arms.map(({ name, assigned }) => `${assigned} in ${name}`).join(', ')
  const test = `Test, at all looks together, whether units were assigned to the arms as planned (${counts})`
  return [
    {
      table: {
        head: ['calls that matched', 'calls'],
        rows: [
          ['in arms', calls.inArms],
          ['of these, assigned by the fallback', calls.fallback],
          ['not drawn', calls.notDrawn],
          [`excluded: they named ${calls.unnamed}`, calls.excluded],
          ['dropped: no room for more units', calls.dropped],
        ],
        numbers: 1,
      },
    },
    ...(sampleRatioP === undefined
      ? ['Agents choose their arm, so no shares were planned.']
      : [isKnown(sampleRatioP) ? `${test}: ${pInWords(sampleRatioP)}.` : `${test}: not known yet.`]),
  ]
}

export function markdownOf(report: Report): string {
  const { label, sentence } = verdictInWords(report)
  const ran = ranInWords(report)
  return [
    `# Experiment ${report.name}`,
    report.verdict === undefined ? markdownLine(sentence) : `**${label}**: ${markdownLine(sentence)}`,
    ...othersInWords(report).map(markdownLine),
    ...(ran === undefined ? [] : [ran]),
    ...sectionsOf(report).flatMap(({ title, blocks }) => [`## ${title}`, ...blocks.map(markdownBlock)]),
  ].join('\n\n')
}

/** Returns the verdicts on the other treatments, a sentence each. */
export function othersInWords(report: Report): string[] {
  return treatmentsOf(report).flatMap((arm) => {
    const verdict = ofArm(report.verdicts, arm)
    if (arm === report.treatment || verdict === undefined) return []
    const name = nameIn(report.arms, arm)
    return verdict.sentence.includes(name) ? `${verdict.sentence}.` : `${name}: ${verdict.sentence}.`
  })
}
