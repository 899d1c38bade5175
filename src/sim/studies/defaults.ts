import { formatDuration } from '../../units/duration.ts'
import { inForce } from '../policy-choices.ts'
import { mean } from '../statistics.ts'
import { type Overload, overloads, runOverload } from './defaults/overload.ts'
import { rows, type Row as Illness } from './defaults/rows.ts'
import { CALLS, type Load, type Measured, PATIENCE_MS, run, THINK_MS } from './defaults/run.ts'
import { defaults, none, sets } from './defaults/sets.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Column, type Row, type Study } from './study.ts'

/** The load under which all sets are compared. */
const USUAL: Load = { agents: 8, callMs: 30, effect: 'read_only' }

/** Other loads, under which the defaults are compared with no policies. */
const others: readonly Load[] = [
  { ...USUAL, agents: 1 },
  { ...USUAL, agents: 64 },
  { ...USUAL, callMs: 2_000 },
  { ...USUAL, effect: 'idempotent' },
  { ...USUAL, effect: 'write' },
]

/** How many more of the tasks may fail than with the best of the others before it is said: a point. */
const MARGIN = 0.01
const POINT = '1 point'

const nameOf = ({ agents, callMs, effect }: Load) =>
  `${agents} ${agents === 1 ? 'agent' : 'agents'}, ${formatDuration(callMs)}, ${kinds[effect]}`

const kinds: Readonly<Record<Load['effect'], string>> = {
  read_only: 'reads',
  idempotent: 'writes that may be repeated',
  write: 'writes',
  unknown: 'writes',
}

interface Cell {
  readonly illness: Illness
  readonly load: Load
  readonly set: (typeof sets)[number]
}

/** The defaults beside no policies and the defaults of others, while servers are ill in each of many ways. */
export const defaultsStudy: Study = {
  about:
    'what the default policies do for agents, beside no policies and the defaults of others, in each way to be ill',
  seeds: 4,
  async run(options) {
    const cells: Cell[] = [
      ...rows.flatMap((illness) => sets.map((set) => ({ illness, load: USUAL, set }))),
      ...others.flatMap((load) =>
        rows.flatMap((illness) => [none, defaults].map((set) => ({ illness, load, set }))),
      ),
    ]
    const crowds = overloads.flatMap((overload) => sets.map((set) => ({ overload, set })))
    const share = cells.length / (cells.length + crowds.length)
    const runs = await overSeeds(
      cells,
      { ...options, onProgress: (done) => options.onProgress?.(done * share) },
      ({ illness, load, set }, seed) => run(illness, load, set, seed),
    )
    const crowdRuns = await overSeeds(
      crowds,
      { ...options, onProgress: (done) => options.onProgress?.(share + done * (1 - share)) },
      ({ overload, set }, seed) => runOverload(overload, set, seed),
    )
    const summaryOf = (illness: Illness, load: Load, set: Cell['set']) =>
      summary(
        runs[cells.findIndex((cell) => cell.illness === illness && cell.load === load && cell.set === set)]!,
      )
    const unansweredOf = (overload: Overload, set: Cell['set']) => {
      const made = crowdRuns[crowds.findIndex((cell) => cell.overload === overload && cell.set === set)]!
      return ratio(
        made,
        ({ unanswered }) => unanswered,
        ({ asked }) => asked,
      )
    }
    const failed = rows.map((illness) => sets.map((set) => summaryOf(illness, USUAL, set).failedTasks))
    return {
      model: `Agents with tasks of ${CALLS} calls, one at a time, ${formatDuration(THINK_MS)} apart, that give a call up after ${formatDuration(PATIENCE_MS)}; a call that fails, or whose answer is wrong, fails its task; the number of tasks is fixed. ${nameOf(USUAL)} where nothing else is said; calls take half to one and a half of their time. In force by default: ${listed(inForce)}. Seeds: ${options.seeds}.`,
      tables: [
        {
          name: 'sets',
          title: 'Tasks failed, by what ails the server and by policies',
          columns: [
            { key: 'server', label: 'the server' },
            ...sets.map(({ name }): Column => ({ key: name, label: name, unit: 'share' })),
          ],
          rows: rows.map((illness, at): Row => ({
            server: illness.name,
            ...Object.fromEntries(sets.map(({ name }, nth) => [name, figure(failed[at]![nth]!)])),
          })),
          bars: [none.name, defaults.name],
        },
        {
          name: 'overload',
          title: 'Calls not answered under overload, by policies',
          columns: [
            { key: 'server', label: 'the server' },
            ...sets.map(({ name }): Column => ({ key: name, label: name, unit: 'share' })),
          ],
          rows: overloads.map((overload): Row => ({
            server: overload.name,
            ...Object.fromEntries(sets.map((set) => [set.name, figure(unansweredOf(overload, set))])),
          })),
          bars: [none.name, defaults.name],
        },
        {
          name: 'price',
          title: 'What the defaults cost, and how soon all is well',
          columns: [
            { key: 'server', label: 'the server' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            { key: 'ill', label: 'attempts while ill', unit: 'times', absent: 'none without policies' },
            { key: 'well', label: 'last failure after', unit: 's' },
            { key: 'wellNone', label: 'without policies', unit: 's' },
            { key: 'p50', label: 'p50', unit: 'ms' },
            { key: 'p95', label: 'p95', unit: 'ms' },
            { key: 'p95None', label: 'p95 without policies', unit: 'ms' },
          ],
          rows: rows.map((illness): Row => {
            const [own, bare] = [summaryOf(illness, USUAL, defaults), summaryOf(illness, USUAL, none)]
            return {
              server: illness.name,
              attempts: figure(own.attempts),
              ill: figure(own.illAttempts / bare.illAttempts),
              well: figure(own.wellAfterS),
              wellNone: figure(bare.wellAfterS),
              p50: figure(own.p50),
              p95: figure(own.p95),
              p95None: figure(bare.p95),
            }
          }),
          bars: [],
        },
        {
          name: 'loads',
          title: 'Tasks failed without policies and by default, under other loads',
          columns: [
            { key: 'load', label: 'load' },
            { key: 'server', label: 'the server' },
            { key: 'none', label: 'none', unit: 'share' },
            { key: 'default', label: 'default', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            { key: 'twice', label: 'writes that ran twice', unit: 'count' },
          ],
          rows: others.flatMap((load) =>
            rows.map((illness): Row => {
              const [own, bare] = [summaryOf(illness, load, defaults), summaryOf(illness, load, none)]
              return {
                load: nameOf(load),
                server: illness.name,
                none: figure(bare.failedTasks),
                default: figure(own.failedTasks),
                attempts: figure(own.attempts),
                twice: load.effect === 'write' ? own.twice : null,
              }
            }),
          ),
          bars: [],
        },
      ],
      series: [],
      seen: sentences(failed, (load, illness, set) => summaryOf(illness, load, set)),
    }
  },
}

function ratio<Made>(
  made: readonly Made[],
  part: (one: Made) => number,
  whole: (one: Made) => number,
): number {
  const sum = (of: (one: Made) => number) => made.reduce((total, one) => total + of(one), 0)
  return sum(part) / sum(whole)
}

/** What the runs of one cell have in common. */
function summary(made: readonly Measured[]) {
  return {
    failedTasks: ratio(
      made,
      ({ failedTasks }) => failedTasks,
      ({ tasks }) => tasks,
    ),
    attempts: ratio(
      made,
      ({ attempts }) => attempts,
      ({ calls }) => calls,
    ),
    illAttempts: mean(made.map(({ illAttempts }) => illAttempts)),
    wellAfterS: mean(made.map(({ wellAfterS }) => wellAfterS)),
    p50: mean(made.map(({ p50 }) => p50)),
    p95: mean(made.map(({ p95 }) => p95)),
    twice: made.reduce((sum, { twice }) => sum + twice, 0),
  }
}

function sentences(
  failed: readonly (readonly number[])[],
  summaryOf: (load: Load, illness: Illness, set: Cell['set']) => ReturnType<typeof summary>,
): string[] {
  const [own, bare] = [sets.indexOf(defaults), sets.indexOf(none)]
  const share = (value: number) => inWords(value, 'share')
  const never = rows.filter((_, at) => failed[at]![own] === 0)
  const hurt = rows.filter((_, at) => failed[at]![bare]! > 0)
  const said = [
    `By default no task fails in ${never.length} of ${rows.length} rows; without policies none fails in ${rows.length - hurt.length}.`,
  ]
  const worse = rows.flatMap((illness, at) => {
    const difference = failed[at]![own]! - failed[at]![bare]!
    return difference > 0
      ? [`${illness.name} (${share(failed[at]![own]!)} instead of ${share(failed[at]![bare]!)})`]
      : []
  })
  said.push(
    worse.length === 0
      ? 'In no row more tasks fail by default than without policies.'
      : `More tasks fail by default than without policies: ${listed(worse)}.`,
  )
  const lost = rows.flatMap((illness, at) => {
    const best = Math.min(...failed[at]!)
    if (failed[at]![own]! <= best + MARGIN) return []
    const winner = sets[failed[at]!.indexOf(best)]!
    return [`${illness.name} (${share(failed[at]![own]!)}; ${winner.name} ${share(best)})`]
  })
  said.push(
    lost.length === 0
      ? `No other set is better by more than ${POINT} in any row.`
      : `Another set is better by more than ${POINT}: ${listed(lost)}.`,
  )
  const worseLoads = others.flatMap((load) =>
    rows.flatMap((illness) => {
      const [mine, theirs] = [summaryOf(load, illness, defaults), summaryOf(load, illness, none)]
      return mine.failedTasks > theirs.failedTasks
        ? [
            `${nameOf(load)}: ${illness.name} (${share(mine.failedTasks)} instead of ${share(theirs.failedTasks)})`,
          ]
        : []
    }),
  )
  said.push(
    worseLoads.length === 0
      ? 'That holds under the other loads too.'
      : `Under other loads more tasks fail by default: ${listed(worseLoads)}.`,
  )
  const twice = others.reduce(
    (sum, load) =>
      sum +
      rows.reduce((total, illness) => total + summaryOf(load, illness, defaults).twice, 0) *
        Number(load.effect === 'write'),
    0,
  )
  said.push(twice === 0 ? 'No write ran twice.' : `${twice} writes ran twice.`)
  return said
}
