import type { Look, Run } from '../../src/experiments/experiments.ts'
import { judge, type Known } from '../../src/experiments/judge.ts'
import {
  factsOf,
  type Report,
  type ReportFacts,
  reportOn,
  type SettingsUnder,
} from '../../src/experiments/report.ts'
import { Room, Samples } from '../../src/experiments/samples.ts'
import { type Experiment, experiment as schema } from '../../src/experiments/schema.ts'
import { createRandom } from '../../src/experiments/statistics/random.ts'
import type { Verdict } from '../../src/experiments/statistics/verdict.ts'
import type { Fate } from '../../src/mesh/injected.ts'

/** Share of calls of an arm that fail, in [0, 1]. */
type Failing = Readonly<Record<string, number>>

export interface Simulated {
  /** The experiment's config without its name. */
  readonly experiment: object
  readonly failing: Failing
  /** In all arms together. */
  readonly tasks: number
  /** A second apart. Default: 12. */
  readonly looks?: number
  /** Why the experiment ended. Default: it runs. */
  readonly ended?: string
  /** Settings of the policy sets. */
  readonly settings?: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

const settingsIn =
  ({ settings = {} }: Pick<Simulated, 'settings'>): SettingsUnder =>
  () =>
  (set) =>
    settings[set] ?? {}

/** Returns the report of an experiment with made-up tasks of four calls each, the same in each run. */
export const simulated = (given: Simulated): Report => reportOn(simulatedFacts(given))

/** Returns the facts behind the simulated report. */
export function simulatedFacts(given: Simulated): ReportFacts {
  const { failing, tasks, looks = 12, ended } = given
  const experiment = schema.parse({ name: 'canary', ...given.experiment })
  const samples = new Samples(new Room())
  const random = createRandom(7)
  const arms = Object.keys(experiment.arms)
  const seen: Look[] = []
  for (let task = 0, look = 1; look <= looks; look++) {
    for (; task < (tasks * look) / looks; task++)
      addTask(samples, task, arms[task % arms.length]!, failing, random)
    seen.push(lookAt(experiment, samples, look * 1_000))
  }
  const end = ended === undefined ? undefined : { at: looks * 1_000, atWall: looks * 1_000, reason: ended }
  const run: Run = {
    experiment,
    policies: { defaults: {}, overrides: [], sets: {} },
    startedAtWall: 0,
    startedAt: 0,
    samples,
    looks: seen,
    judgement: judge(experiment, known(experiment, samples), { isOver: ended !== undefined }),
    end,
  }
  return factsOf({ experiment, run }, settingsIn(given), looks * 1_000)
}

export function unstarted(given: Pick<Simulated, 'experiment' | 'settings'>): Report {
  const experiment = schema.parse({ name: 'canary', ...given.experiment })
  return reportOn(factsOf({ experiment, run: undefined }, settingsIn(given), 0))
}

/** Returns the report as the command gets it from the admin API. */
export const overTheWire = (report: Report): Report => JSON.parse(JSON.stringify(report)) as Report

const CALLS = 4

function addTask(samples: Samples, task: number, arm: string, failing: Failing, random: () => number): void {
  const sample = samples.begin(`task ${task}`, arm, { tenant: '', now: 0 })!
  const ofArm = samples.fates.get(arm) ?? new Map<Fate, number>()
  samples.fates.set(arm, ofArm)
  for (let call = 0; call < CALLS; call++) {
    const fails = random() < (failing[arm] ?? 0)
    const tookMs = 20 + 30 * random()
    sample.calls++
    sample.valid++
    sample.eligible++
    sample.attempts++
    sample.returned++
    if (fails) sample.failed++
    else sample.good++
    sample.totalMs += tookMs
    sample.durations.push(tookMs)
    if (fails) ofArm.set('surfaced', (ofArm.get('surfaced') ?? 0) + 1)
  }
  sample.underWay = 0
}

/** Returns facts in which all tasks are over. */
function known({ arms }: Experiment, samples: Samples): Known {
  const units = samples.known()
  samples.mark(units)
  return { units, assigned: new Map(Object.keys(arms).map((arm) => [arm, samples.unitsOf(arm)])) }
}

function lookAt(experiment: Experiment, samples: Samples, atMs: number): Look {
  const { verdict, verdicts, units } = judge(experiment, known(experiment, samples), { isOver: false })
  const of = ({ difference, low, high }: Verdict) => ({ difference, low, high })
  const byTreatment = Object.fromEntries(Object.entries(verdicts).map(([arm, one]) => [arm, of(one)]))
  return { atMs, units, ...of(verdict), byTreatment }
}
