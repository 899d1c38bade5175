import { fates } from '../mesh/injected.ts'
import { roundedDuration } from '../units/duration.ts'
import { markdownBlock, type Table } from './blocks.ts'
import type { PairedReport, TwinDecisions } from './paired.ts'
import {
  differenceInWords,
  fateInWords,
  intervalInWords,
  settingBlock,
  valueInWords,
  withoutLabel,
} from './report-text.ts'
import { pInWords } from './statistics/sentences.ts'

export function pairedMarkdown(report: PairedReport): string {
  const { control, treatment, workload, seed, pairs, result, sentence, p, flaws, warnings, planned, twins } =
    report
  const played = twins.length === planned ? `${planned}` : `${twins.length} of ${planned}`
  return [
    `# ${treatment} against ${control}`,
    `**${result}**: ${withoutLabel(sentence)}.`,
    ...listOf('Not sound', flaws),
    ...listOf('Warning', warnings),
    `${played} tasks of the workload ${workload}, each played once under either policy set, with seed ${seed}, in ${roundedDuration(report.ranMs)}.`,
    '## Pairs',
    pairTable(report),
    `McNemar's exact test of the ${pairs.controlOnly + pairs.treatmentOnly} tasks that succeed under one set only: ${pInWords(p)}.`,
    '## Tasks',
    'Means over the tasks; differences are between twins, with 95 % intervals.',
    meanTable(report),
    '## Calls',
    textOf(
      ['duration', control, treatment],
      report.quantiles.map((one) => [
        one.name,
        valueInWords(one.control, 'ms'),
        valueInWords(one.treatment, 'ms'),
      ]),
    ),
    '## Faults',
    ...faultLines(report),
    '## Settings',
    markdownBlock(settingBlock(report.settings, [control, treatment])),
  ].join('\n\n')
}

/** Returns a Markdown list with the same words before each sentence; empty without sentences. */
const listOf = (words: string, sentences: readonly string[]): string[] =>
  sentences.length === 0 ? [] : [sentences.map((sentence) => `- ${words}: ${sentence}.`).join('\n')]

function pairTable({ control, treatment, pairs, kinds }: PairedReport): string {
  const row = (name: string, { both, controlOnly, treatmentOnly, neither }: typeof pairs) => [
    name,
    both,
    controlOnly,
    treatmentOnly,
    neither,
    both + controlOnly + treatmentOnly + neither,
  ]
  return textOf(
    ['tasks', 'succeed in both', `in ${control} only`, `in ${treatment} only`, 'in neither', 'together'],
    [
      ...Object.entries(kinds).map(([kind, counts]) => row(kind, counts)),
      ...(Object.keys(kinds).length === 1 ? [] : [row('all', pairs)]),
    ],
  )
}

const names = {
  right_calls: 'calls that go right',
  attempts_per_call: 'tries per call',
  mean_ms: 'mean duration of a call',
} as const

function meanTable({ control, treatment, means, pairs, difference, twins }: PairedReport): string {
  const share = (succeeded: number) => (twins.length === 0 ? NaN : succeeded / twins.length)
  const success = {
    name: 'tasks that succeed',
    unit: 'points' as const,
    control: share(pairs.both + pairs.controlOnly),
    treatment: share(pairs.both + pairs.treatmentOnly),
    difference,
  }
  return textOf(
    ['', control, treatment, 'difference', '95 % interval'],
    [success, ...means.map((mean) => ({ ...mean, name: names[mean.name] }))].map((mean) => [
      mean.name,
      valueInWords(mean.control, mean.unit),
      valueInWords(mean.treatment, mean.unit),
      differenceInWords(mean.difference.estimate, mean.unit),
      intervalInWords(mean.difference, mean.unit),
    ]),
  )
}

function faultLines({ control, treatment, faults }: PairedReport): string[] {
  if (faults.names.length === 0) return ['No fault was armed.']
  return [
    `Armed: ${faults.names.join(', ')}. Fates of the injected faults:`,
    textOf(
      ['set', ...fates.map(fateInWords), 'injected'],
      [control, treatment].map((set) => {
        const counts = fates.map((fate) => faults.fates[set]?.[fate] ?? 0)
        return [set, ...counts, counts.reduce((sum, count) => sum + count, 0)]
      }),
    ),
    textOf(
      ['decisions on', 'made for both twins', 'different', 'made for one only'],
      [decisionRow('first tries', faults.first), decisionRow('further tries', faults.later)],
    ),
    ...(faults.examples.length === 0 ? [] : [faults.examples.map((example) => `- ${example}`).join('\n')]),
  ]
}

const decisionRow = (name: string, { twice, different, once }: TwinDecisions) => [
  name,
  twice,
  different,
  once,
]

const textOf = (head: readonly string[], rows: Table['rows']): string =>
  markdownBlock({ table: { head, rows, numbers: 1 } })
