import { roundedDuration } from '../units/duration.ts'
import type { PairedReport, TwinDecisions } from './paired.ts'
import { differenceInWords, valueInWords, withoutLabel } from './report-text.ts'
import { pInWords } from './statistics/sentences.ts'

/** The report of a paired run as Markdown. */
export function pairedMarkdown(report: PairedReport): string {
  const { control, treatment, workload, seed, pairs, result, sentence, p, flaws, planned, twins } = report
  const played = twins.length === planned ? `${planned}` : `${twins.length} of ${planned}`
  return [
    `# ${treatment} against ${control}`,
    `**${result}**: ${withoutLabel(sentence)}.`,
    ...(flaws.length === 0 ? [] : [flaws.map((flaw) => `- Not sound: ${flaw}.`).join('\n')]),
    `${played} tasks of the workload ${workload}, each played once under either policy set, with seed ${seed}, in ${roundedDuration(report.ranMs)}.`,
    '## Pairs',
    pairTable(report),
    `McNemar's exact test of the ${pairs.controlOnly + pairs.treatmentOnly} tasks that succeed under one set only: ${pInWords(p)}.`,
    '## Tasks',
    'Means over the tasks; differences are of twins, with 95 % intervals.',
    meanTable(report),
    '## Calls',
    table(
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
    settingTable(report),
  ].join('\n\n')
}

function pairTable({ control, treatment, pairs, kinds }: PairedReport): string {
  const row = (name: string, { both, controlOnly, treatmentOnly, neither }: typeof pairs) => [
    name,
    both,
    controlOnly,
    treatmentOnly,
    neither,
    both + controlOnly + treatmentOnly + neither,
  ]
  return table(
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
  return table(
    ['', control, treatment, 'difference', '95 % interval'],
    [success, ...means.map((mean) => ({ ...mean, name: names[mean.name] }))].map((mean) => [
      mean.name,
      valueInWords(mean.control, mean.unit),
      valueInWords(mean.treatment, mean.unit),
      differenceInWords(mean.difference.estimate, mean.unit),
      `${differenceInWords(mean.difference.low, mean.unit)} to ${differenceInWords(mean.difference.high, mean.unit)}`,
    ]),
  )
}

const fates = ['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'] as const

function faultLines({ control, treatment, faults }: PairedReport): string[] {
  if (faults.names.length === 0) return ['No fault was armed.']
  return [
    `Armed: ${faults.names.join(', ')}. What became of those that were injected:`,
    table(
      ['set', ...fates.map((fate) => fate.replace('_', ' ')), 'injected'],
      [control, treatment].map((set) => {
        const counts = fates.map((fate) => faults.fates[set]?.[fate] ?? 0)
        return [set, ...counts, counts.reduce((sum, count) => sum + count, 0)]
      }),
    ),
    table(
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

function settingTable({ control, treatment, settings }: PairedReport): string {
  if (settings.length === 0) return 'Their settings are the same.'
  return table(
    ['setting', control, treatment],
    settings.map(({ setting, byArm }) => [setting, byArm[control] ?? '–', byArm[treatment] ?? '–']),
  )
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => String(cell).replaceAll('|', '\\|').replace(/\s+/g, ' ')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
