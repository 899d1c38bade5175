import { formatDuration } from '../../units/duration.ts'
import { inForce } from '../policy-choices.ts'
import { mean } from '../statistics.ts'
import { type Overload, type OverloadMeasured, overloads, runOverload } from './defaults/overload.ts'
import { rows, type Row as Illness } from './defaults/rows.ts'
import { CALLS, type Load, type Measured, PATIENCE_MS, run, THINK_MS } from './defaults/run.ts'
import { defaults, none, sets } from './defaults/sets.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Column, type Row, type Study, type Unit } from './study.ts'

/** The load under which all policy sets are compared. */
const USUAL: Load = { agents: 8, callMs: 30, effect: 'read_only' }
export const USUAL_NAME = '8 agents'

/** Further loads, by name, to compare the defaults with no policies. */
const others = {
  '1 agent': { ...USUAL, agents: 1 },
  '64 agents': { ...USUAL, agents: 64 },
  '2 s calls': { ...USUAL, callMs: 2_000 },
  repeatable: { ...USUAL, effect: 'idempotent' },
  writes: { ...USUAL, effect: 'write' },
} as const satisfies Readonly<Record<string, Load>>

/**
 * Above this number of agents, the number of seeds falls in proportion, because every agent of a run has its own tasks.
 */
const MANY_AGENTS = 32

/** A lead of another set is reported if it is larger than this share of failed tasks: one point. */
const MARGIN = 0.01
const POINT = '1 point'

interface Cell {
  readonly name: string
  readonly illness: Illness
  readonly load: Load
  readonly set: (typeof sets)[number]
}

/**
 * A study that compares the defaults with no policies and with the defaults of others, for many kinds of ill servers.
 */
export const defaultsStudy: Study = {
  about:
    'the default policies compared with no policies and the defaults of others, for each illness of a server',
  seeds: 4,
  async run(options) {
    const cells: Cell[] = [
      ...rows.flatMap((illness) => sets.map((set) => ({ name: USUAL_NAME, illness, load: USUAL, set }))),
      ...Object.entries(others).flatMap(([name, load]) =>
        rows.flatMap((illness) => [none, defaults].map((set) => ({ name, illness, load, set }))),
      ),
    ]
    const crowds = overloads.flatMap((overload) => sets.map((set) => ({ overload, set })))
    const share = cells.length / (cells.length + crowds.length)
    const seedsOf = ({ agents }: Load) =>
      Math.ceil((options.seeds * MANY_AGENTS) / Math.max(agents, MANY_AGENTS))
    const made = await overSeeds(
      cells,
      { ...options, onProgress: (done) => options.onProgress?.(done * share) },
      ({ illness, load, set }, seed) =>
        seed < options.seed + seedsOf(load) ? run(illness, load, set, seed) : Promise.resolve(undefined),
    )
    const runs = made.map((all) => all.filter((one) => one !== undefined))
    const crowdRuns = await overSeeds(
      crowds,
      { ...options, onProgress: (done) => options.onProgress?.(share + done * (1 - share)) },
      ({ overload, set }, seed) => runOverload(overload, set, seed),
    )
    const summaries = runs.map(summary)
    const summaryOf = (illness: Illness, load: Load, set: Cell['set']) =>
      summaries[
        cells.findIndex((cell) => cell.illness === illness && cell.load === load && cell.set === set)
      ]!
    const crowdSummaries = crowdRuns.map(crowdSummary)
    const crowdOf = (overload: Overload, set: Cell['set']) =>
      crowdSummaries[crowds.findIndex((cell) => cell.overload === overload && cell.set === set)]!
    const bySets = (label: string, unit: Unit): Column[] => [
      { key: 'server', label },
      ...sets.map(({ name }): Column => ({ key: name, label: name, unit })),
    ]
    const valuesBySets = (name: string, value: (set: Cell['set']) => number): Row => ({
      server: name,
      ...Object.fromEntries(sets.map((set) => [set.name, figure(value(set))])),
    })
    const shown = [none.name, defaults.name]
    return {
      model: `Agents with tasks of ${CALLS} calls, one at a time, ${formatDuration(THINK_MS)} apart, that give a call up after ${formatDuration(PATIENCE_MS)}; a call that fails, or whose answer is wrong, fails its task; the number of tasks is fixed; where one agent or one tool is at fault, only tasks of the other agents count. ${USUAL_NAME}, reads of ${formatDuration(USUAL.callMs)} unless stated otherwise; calls take half to one and a half of their time. In force by default: ${listed(inForce)}. Seeds: ${options.seeds}; for 64 agents ${seedsOf(others['64 agents'])}.`,
      tables: [
        {
          name: 'sets',
          title: 'Tasks failed, by illness of the server and by policies',
          columns: bySets('the server', 'share'),
          rows: rows.map((illness) =>
            valuesBySets(illness.name, (set) => summaryOf(illness, USUAL, set).failedTasks),
          ),
          bars: shown,
        },
        {
          name: 'overload',
          title: 'Calls not answered under overload, by policies',
          columns: bySets('the server', 'share'),
          rows: overloads.map((overload) =>
            valuesBySets(overload.name, (set) => crowdOf(overload, set).unanswered),
          ),
          bars: shown,
        },
        {
          name: 'ill',
          title: 'Attempts at the ill server, per call from its first illness to its last, by policies',
          columns: bySets('the server', 'count'),
          rows: rows.map((illness) =>
            valuesBySets(illness.name, (set) => summaryOf(illness, USUAL, set).ill),
          ),
          bars: shown,
        },
        {
          name: 'price',
          title: 'Cost of the defaults, and time until the last failure',
          columns: [
            { key: 'server', label: 'the server' },
            { key: 'failedCalls', label: 'calls failed', unit: 'share' },
            { key: 'failedCallsNone', label: 'without policies', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            {
              key: 'ill',
              label: 'attempts at the ill server',
              unit: 'times',
              absent: 'none without policies',
            },
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
              failedCalls: figure(own.failedCalls),
              failedCallsNone: figure(bare.failedCalls),
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
            { key: 'server', label: 'the server' },
            ...Object.keys(others).flatMap((load): Column[] => [
              { key: `${load} none`, label: `${load}: none`, unit: 'share' },
              { key: `${load} default`, label: 'default', unit: 'share' },
            ]),
          ],
          rows: rows.map((illness): Row => ({
            server: illness.name,
            ...Object.fromEntries(
              Object.entries(others).flatMap(([name, load]) => [
                [`${name} none`, figure(summaryOf(illness, load, none).failedTasks)],
                [`${name} default`, figure(summaryOf(illness, load, defaults).failedTasks)],
              ]),
            ),
          })),
          bars: [],
        },
        {
          name: 'cells',
          title: 'All measurements, by load, illness of the server and policies',
          columns: [
            { key: 'load', label: 'load' },
            { key: 'server', label: 'the server' },
            { key: 'policies', label: 'policies' },
            { key: 'tasks', label: 'tasks', unit: 'count' },
            { key: 'failedTasks', label: 'tasks failed', unit: 'share' },
            { key: 'harm', label: 'of agents beside the fault', unit: 'share' },
            { key: 'failedCalls', label: 'calls failed', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            { key: 'ill', label: 'attempts at the ill server/call', unit: 'count' },
            { key: 'well', label: 'last failure after', unit: 's' },
            { key: 'p50', label: 'p50', unit: 'ms' },
            { key: 'p95', label: 'p95', unit: 'ms' },
            { key: 'twice', label: 'writes that ran twice', unit: 'count' },
          ],
          rows: cells.map(({ name, load, illness, set }, at): Row => {
            const made = summaries[at]!
            return {
              load: name,
              server: illness.name,
              policies: set.name,
              tasks: made.tasks,
              failedTasks: figure(made.failedTasks),
              harm: illness.offenders === undefined ? null : figure(made.failedTasks),
              failedCalls: figure(made.failedCalls),
              attempts: figure(made.attempts),
              ill: figure(made.ill),
              well: figure(made.wellAfterS),
              p50: figure(made.p50),
              p95: figure(made.p95),
              twice: load.effect === 'write' ? made.twice : null,
            }
          }),
          bars: [],
          isLong: true,
        },
        {
          name: 'crowds',
          title: 'All measurements under overload',
          columns: [
            { key: 'server', label: 'the server' },
            { key: 'policies', label: 'policies' },
            { key: 'unanswered', label: 'calls not answered', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            { key: 'well', label: 'well after', unit: 's', absent: 'never' },
          ],
          rows: crowds.map(({ overload, set }, at): Row => {
            const { unanswered, attempts, wellAfterS } = crowdSummaries[at]!
            return {
              server: overload.name,
              policies: set.name,
              unanswered: figure(unanswered),
              attempts: figure(attempts),
              well: figure(wellAfterS),
            }
          }),
          bars: [],
          isLong: true,
        },
      ],
      series: [],
      seen: sentences(summaryOf, (overload, set) => crowdOf(overload, set).unanswered),
    }
  },
}

function sum<Made>(made: readonly Made[], of: (one: Made) => number): number {
  return made.reduce((total, one) => total + of(one), 0)
}

const ratio = <Made>(
  made: readonly Made[],
  part: (one: Made) => number,
  whole: (one: Made) => number,
): number => sum(made, part) / sum(made, whole)

function summary(made: readonly Measured[]) {
  return {
    tasks: sum(made, ({ tasks }) => tasks),
    failedTasks: ratio(
      made,
      ({ failedTasks }) => failedTasks,
      ({ tasks }) => tasks,
    ),
    failedCalls: ratio(
      made,
      ({ failedCalls }) => failedCalls,
      ({ calls }) => calls,
    ),
    attempts: ratio(
      made,
      ({ attempts }) => attempts,
      ({ calls }) => calls,
    ),
    ill: ratio(
      made,
      ({ illAttempts }) => illAttempts,
      ({ illCalls }) => illCalls,
    ),
    illAttempts: sum(made, ({ illAttempts }) => illAttempts),
    wellAfterS: mean(made.map(({ wellAfterS }) => wellAfterS)),
    p50: mean(made.map(({ p50 }) => p50)),
    p95: mean(made.map(({ p95 }) => p95)),
    twice: sum(made, ({ twice }) => twice),
  }
}

function crowdSummary(made: readonly OverloadMeasured[]) {
  return {
    unanswered: ratio(
      made,
      ({ unanswered }) => unanswered,
      ({ asked }) => asked,
    ),
    attempts: ratio(
      made,
      ({ attempts }) => attempts,
      ({ asked }) => asked,
    ),
    wellAfterS: mean(made.map(({ wellAfterS = Infinity }) => wellAfterS)),
  }
}

function sentences(
  summaryOf: (illness: Illness, load: Load, set: Cell['set']) => ReturnType<typeof summary>,
  unansweredOf: (overload: Overload, set: Cell['set']) => number,
): string[] {
  const share = (value: number) => inWords(value, 'share')
  const failedOf = (illness: Illness, set: Cell['set'], load: Load = USUAL) =>
    summaryOf(illness, load, set).failedTasks
  const unhurtBy = (set: Cell['set']) => rows.filter((illness) => failedOf(illness, set) === 0).length
  const said = [
    `By default no task fails in ${unhurtBy(defaults)} of ${rows.length} rows; without policies no task fails in ${unhurtBy(none)}.`,
  ]
  const worseUnder = (load: Load) =>
    rows.flatMap((illness) => {
      const [own, bare] = [failedOf(illness, defaults, load), failedOf(illness, none, load)]
      return own > bare ? [`${illness.name} (${share(own)} instead of ${share(bare)})`] : []
    })
  const worse = worseUnder(USUAL)
  said.push(
    worse.length === 0
      ? 'There is no row in which more tasks fail by default than without policies.'
      : `More tasks fail by default than without policies: ${listed(worse)}.`,
  )
  /** Returns a text if another set is better than the defaults by more than a point; else an empty list. */
  const lost = (name: string, valueOf: (set: Cell['set']) => number) => {
    const winner = sets.reduce((best, set) => (valueOf(set) < valueOf(best) ? set : best))
    const [own, best] = [valueOf(defaults), valueOf(winner)]
    return own > best + MARGIN ? [`${name} (${share(own)}; ${winner.name} ${share(best)})`] : []
  }
  const lostRows = rows.flatMap((illness) => lost(illness.name, (set) => failedOf(illness, set)))
  said.push(
    lostRows.length === 0
      ? `No other set is better by more than ${POINT} in any row.`
      : `Another set is better by more than ${POINT}: ${listed(lostRows)}.`,
  )
  const crowds = overloads.flatMap((overload) => lost(overload.name, (set) => unansweredOf(overload, set)))
  if (crowds.length > 0)
    said.push(`Under overload another set is better by more than ${POINT}: ${listed(crowds)}.`)
  const worseLoads = Object.entries(others).flatMap(([name, load]) =>
    worseUnder(load).map((found) => `${name}: ${found}`),
  )
  said.push(
    worseLoads.length === 0
      ? 'Also under the other loads, no more tasks fail by default than without policies.'
      : `Under other loads more tasks fail by default: ${listed(worseLoads)}.`,
  )
  for (const [why, losers] of byReason([...rows, ...overloads]))
    said.push(`Reason for ${listed(losers)}: ${why}.`)
  const writes = rows.reduce((total, illness) => total + summaryOf(illness, others.writes, defaults).twice, 0)
  said.push(writes === 0 ? 'No write ran twice.' : `${writes} writes ran twice.`)
  return said
}

/** Returns the names of rows in which another set is better, by reason. */
function byReason(all: readonly (Illness | Overload)[]): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>()
  for (const { name, loses } of all)
    if (loses !== undefined) found.set(loses.why, [...(found.get(loses.why) ?? []), name])
  return found
}
