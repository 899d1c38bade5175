import type { Metrics } from './metrics.ts'

/** The experiments of the config, each with its run of now or else its last one, as far as telemetry reads them. */
export type ExperimentRuns = readonly {
  readonly experiment: { readonly name: string; readonly arms: Readonly<Record<string, unknown>> }
  readonly run: { readonly samples: Samples; readonly end: object | undefined } | undefined
}[]

/** What calls of a run came to, in calls. */
interface Samples {
  /** Calls in arms of which something is kept. */
  readonly assigned: number
  readonly fallback: number
  readonly dropped: number
  readonly out: { readonly not_drawn: number; readonly excluded: number }
  unitsOf(arm: string): number
}

/** Reads into metrics which experiments run, and which calls they have got: done at a scrape. */
export function collectExperiments(
  metrics: Pick<Metrics, 'experimentRunning' | 'experimentUnits' | 'experimentCalls'>,
  runs: ExperimentRuns,
): void {
  const { experimentRunning, experimentUnits, experimentCalls } = metrics
  const names = new Set(runs.map(({ experiment }) => experiment.name))
  experimentRunning.reset()
  experimentUnits.reset()
  experimentCalls.forget(({ experiment = '' }) => !names.has(experiment))
  for (const { experiment, run } of runs) {
    const { name, arms } = experiment
    experimentRunning.set({ experiment: name }, run !== undefined && run.end === undefined ? 1 : 0)
    for (const arm of Object.keys(arms))
      experimentUnits.set({ arm: `${name}/${arm}` }, run?.samples.unitsOf(arm) ?? 0)
    for (const [assigned, count] of Object.entries(callsOf(run?.samples)))
      experimentCalls.series({ experiment: name, assigned }).value = count
  }
}

/** Each call once. */
function callsOf(samples: Samples | undefined): Readonly<Record<string, number>> {
  const { assigned = 0, fallback = 0, dropped = 0, out } = samples ?? {}
  const { not_drawn = 0, excluded = 0 } = out ?? {}
  return { unit: assigned - fallback, fallback, not_drawn, excluded, dropped }
}
