import type { Fault } from '../../chaos/plan/common.ts'
import { formatDuration } from '../../units/duration.ts'
import { agents } from '../agents.ts'
import { byDefault, inForce, none, type PolicyChoice, withSettings, without } from '../policy-choices.ts'
import { simulate } from '../run.ts'
import { CALL_MS, independentErrors, listing, planned, sceneOf } from '../scene.ts'
import { slisOf } from '../tasks.ts'
import { isClear, mean, quantile } from '../statistics.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Row, type Study } from './study.ts'

const TASKS = 100
const FAN_OUT = 8
const CONCURRENCY = 4

/**
 * Minimum duration of an agent's step, in milliseconds. A run then takes 20 s, longer than a breaker's first open time.
 */
const STEP_MS = 100

const RATE = 0.05
const DELAYED = 0.1

const BURST_MS = 1_000

const DOWN_FROM_MS = 4_000
const DOWN_TO_MS = 7_000

interface Mix {
  readonly name: string
  readonly faults: readonly Fault[]
}

const mixes: readonly Mix[] = [
  { name: 'errors', faults: [independentErrors(RATE)] },
  {
    name: 'bursts',
    faults: [
      planned({
        name: 'bursts',
        type: 'rpc.error',
        rate: RATE,
        when: { burst: { meanLength: BURST_MS / CALL_MS, slot: CALL_MS } },
      }),
    ],
  },
  {
    name: 'latency tail',
    faults: [
      planned({
        name: 'tail',
        type: 'conn.latency',
        rate: DELAYED,
        distribution: { kind: 'lognormal', median: '2s', p99: '2m' },
      }),
    ],
  },
  {
    name: 'wrong answers',
    faults: ['drift', 'partial'].map((type) =>
      planned({ name: type, type: `result.${type}`, rate: RATE / 2 }),
    ),
  },
  {
    name: 'server down',
    faults: [
      planned({
        name: 'down',
        type: 'conn.refused',
        rate: 1,
        when: { window: { from: DOWN_FROM_MS, to: DOWN_TO_MS } },
      }),
    ],
  },
]

/** Additions to the default: a breaker with its own defaults, and a breaker with a shorter open time. */
const added: readonly PolicyChoice[] = [
  withSettings('with a breaker', { breaker: {} }),
  withSettings('with a breaker, open for 1s', { breaker: { open: '1s' } }),
]

const choices: readonly PolicyChoice[] = [byDefault, ...inForce.map(without), ...added, none]

/** A study of the default policies: it removes each policy in turn, and adds a breaker. */
export const ablation: Study = {
  about:
    'the contribution of each default policy: each is left out in turn, or a breaker is added, under several faults',
  seeds: 10,
  async run(options) {
    const { servers, stepsOf } = sceneOf(FAN_OUT, undefined, listing)
    const cells = mixes.flatMap((mix) => choices.map((choice) => ({ mix, choice })))
    const runs = await overSeeds(cells, options, async ({ mix, choice }, seed) => {
      const durations: number[] = []
      const tally = await simulate({
        seed,
        servers,
        choice,
        faults: mix.faults,
        workload: {
          tasks: TASKS,
          stepsOf,
          agent: agents.naive,
          concurrency: CONCURRENCY,
          stepMs: STEP_MS,
          // Tasks begin on a fixed schedule. Otherwise tasks that end early would move later tasks into the outage.
          beginsAt: (task) => Math.floor(task / CONCURRENCY) * FAN_OUT * STEP_MS,
        },
        onCall: (_, __, ms) => void durations.push(ms),
      })
      const { blastRadius, tcsr } = slisOf(tally)
      const attempts = tally.attempts / tally.calls
      return { radius: blastRadius, tcsr, p95: quantile(durations, 0.95), attempts }
    })
    const means = cells.map((cell, at) => {
      const over = (key: (typeof keys)[number]) => mean(runs[at]!.map((run) => run[key]))
      return {
        ...cell,
        radius: over('radius'),
        tcsr: over('tcsr'),
        p95: over('p95'),
        attempts: over('attempts'),
      }
    })
    const measured = means.map((one, at) => {
      const usualAt = cells.findIndex(({ mix, choice }) => mix === one.mix && choice === byDefault)
      // Runs with the same seed have the same faults, so differences of pairs are more precise than differences of
      // means.
      const more = (key: 'radius' | 'tcsr') =>
        runs[at]!.map((run, nth) => run[key] - runs[usualAt]![nth]![key])
      return { ...one, usual: means[usualAt]!, radiusMore: more('radius'), tcsrMore: more('tcsr') }
    })
    return {
      model: `${TASKS} tasks of ${FAN_OUT} calls, ${CONCURRENCY} at a time; a call takes ${formatDuration(CALL_MS)}, and a step of an agent at least ${formatDuration(STEP_MS)}, and tasks begin on a schedule; ${inWords(RATE, 'share')} of the calls are hit (bursts last ${formatDuration(BURST_MS)} on average; delays hit ${inWords(DELAYED, 'share')}, with a median of 2s and a p99 of 2m), or the server is down from ${formatDuration(DOWN_FROM_MS)} to ${formatDuration(DOWN_TO_MS)}; seeds: ${options.seeds}. Differences are relative to the default.`,
      tables: mixes.map((mix) => ({
        name: mix.name,
        title: `Under ${mix.name}`,
        columns: [
          { key: 'policies', label: 'policies' },
          { key: 'radius', label: 'blast radius', unit: 'share' },
          { key: 'radiusMore', label: 'difference', unit: 'points' },
          { key: 'tcsr', label: 'TCSR', unit: 'share' },
          { key: 'tcsrMore', label: 'difference', unit: 'points' },
          { key: 'p95', label: 'p95', unit: 'ms' },
          { key: 'p95More', label: 'difference', unit: 'ms' },
          { key: 'attempts', label: 'attempts/call', unit: 'count' },
          { key: 'attemptsMore', label: 'difference', unit: 'count' },
        ],
        rows: measured
          .filter((one) => one.mix === mix)
          .map(({ choice, usual, ...found }): Row => ({
            policies: choice.name,
            ...Object.fromEntries(
              keys.flatMap((key) => [
                [key, figure(found[key])],
                [`${key}More`, figure(found[key] - usual[key])],
              ]),
            ),
          })),
        joins: 'policies',
        bars: ['radius'],
      })),
      series: [],
      seen: mixes.map((mix) => sentence(mix, measured)),
    }
  },
}

const keys = ['radius', 'tcsr', 'p95', 'attempts'] as const

interface Measured {
  readonly mix: Mix
  readonly choice: PolicyChoice
  readonly usual: { readonly radius: number }
  /** Differences from the default policies, by seed. */
  readonly radiusMore: readonly number[]
  readonly tcsrMore: readonly number[]
}

/** Minimum difference that is reported. Smaller differences are dropped even if they are statistically clear. */
const MATTERS = 0.005

const isWorthTelling = (differences: readonly number[]): boolean =>
  isClear(differences) && Math.abs(mean(differences)) >= MATTERS

function sentence(mix: Mix, measured: readonly Measured[]): string {
  const ofMix = measured.filter((one) => one.mix === mix)
  const { usual, radiusMore } = ofMix[0]!
  const first = `Under ${mix.name} ${inWords(usual.radius, 'share')} of the tasks fail by default`
  // A single run cannot show which differences are chance.
  if (radiusMore.length === 1) return `${first}.`
  const changes = ofMix
    .filter(({ radiusMore }) => isWorthTelling(radiusMore))
    .map(({ choice, radiusMore }) => `${inWords(mean(radiusMore), 'points')} ${nameOf(choice)}`)
  const unnoticed = ofMix
    .filter(
      ({ choice, radiusMore, tcsrMore }) =>
        isOff(choice.policies.defaults.verdict) &&
        isWorthTelling(tcsrMore) &&
        mean(tcsrMore) > 0 &&
        !(isWorthTelling(radiusMore) && mean(radiusMore) < 0),
    )
    .map(({ choice, tcsrMore }) => `${inWords(mean(tcsrMore), 'points')} ${nameOf(choice)}`)
  return [
    `${first}; ${changes.length === 0 ? 'no change of policies clearly changes this' : changes.join(', ')}.`,
    ...(unnoticed.length === 0
      ? []
      : [
          `TCSR is higher by ${listed(unnoticed)}, but no fewer tasks fail: the errors are no longer noticed.`,
        ]),
  ].join(' ')
}

const isOff = (settings: unknown): boolean => settings === undefined || settings === false

const nameOf = (choice: PolicyChoice) => (choice === none ? 'without any policy' : choice.name)
