import { count, tasks, tools, type Share } from './counts.ts'
import { SERVER } from './stage.ts'

type Ratio = readonly [part: number, whole: number]

/** An expression over the recording rules, and its samples expected from the script, by their labels (`keyOf`). */
export interface Measure {
  readonly expr: string
  readonly expected: ReadonlyMap<string, Ratio>
}

type Shares = readonly [measure: string, part: Share, whole: Share]

const ofAttempts: readonly Shares[] = [
  ['availability', 'returned', 'eligible'],
  ['correctness', 'good', 'returned'],
  ['eta', 'good', 'eligible'],
  ['unchecked', 'unchecked', 'returned'],
]

const ofCalls: readonly Shares[] = [
  ['call_availability', 'returned', 'eligible'],
  ['call_correctness', 'good', 'returned'],
  ['call_eta', 'good', 'eligible'],
  ['call_unchecked', 'unchecked', 'returned'],
  ['tcsr', 'good', 'felt'],
]

/** Compared windows. Longer windows average recorded values over time, including values recorded amid a pass. */
const windows = ['5m', '30m', '1h']

/** Returns the labels of a sample as one string. Prometheus omits empty labels. */
export const keyOf = ({ server = '', tool = '' }: { readonly server?: string; readonly tool?: string }) =>
  `${server}/${tool}`

const levels = {
  server_tool: tools.map((tool) => ({ key: keyOf({ server: SERVER, tool }), tool })),
  server: [{ key: keyOf({ server: SERVER }), tool: undefined }],
  arm: [{ key: keyOf({}), tool: undefined }],
} as const

/** An empty whole gives no ratio and no sample. */
function ratios(
  of: 'attempts' | 'calls',
  level: keyof typeof levels,
  part: Share,
  whole: Share,
): Measure['expected'] {
  const all = levels[level].map(({ key, tool }): [string, Ratio] => [
    key,
    [count(of, part, tool), count(of, whole, tool)],
  ])
  return new Map(all.filter(([, [, whole]]) => whole > 0))
}

const single = (part: number, whole: number, key = keyOf({})): Measure['expected'] =>
  new Map([[key, [part, whole]]])

export const measures: readonly Measure[] = [
  ...(['server_tool', 'server'] as const).flatMap((level) =>
    windows.flatMap((window) =>
      ofAttempts.map(([measure, part, whole]) => ({
        expr: `${level}:breakwater_${measure}:ratio_rate${window}`,
        expected: ratios('attempts', level, part, whole),
      })),
    ),
  ),
  ...(['server_tool', 'server', 'arm'] as const).flatMap((level) =>
    ofCalls.map(([measure, part, whole]) => ({
      expr: `${level}:breakwater_${measure}:ratio_rate5m`,
      expected: ratios('calls', level, part, whole),
    })),
  ),
  ...(['server', 'arm'] as const).map((level) => ({
    expr: `${level}:breakwater_amplification:ratio_rate5m`,
    expected: single(count('attempts', 'all'), count('calls', 'sent'), levels[level][0].key),
  })),
  ...['gateway', 'arm'].flatMap((level) => [
    { expr: `${level}:breakwater_tcaf:ratio_rate5m`, expected: single(tasks.calls, tasks.all) },
    { expr: `${level}:breakwater_blast_radius:ratio_rate5m`, expected: single(tasks.hurt, tasks.all) },
  ]),
  {
    expr: 'sum(rate(breakwater_intents_unattributed_total[5m])) / sum(rate(breakwater_tool_calls_total[5m]))',
    expected: single(count('calls', 'all') - tasks.calls, count('calls', 'all')),
  },
]
