import type { UnitSample } from './samples.ts'
import type { Metric as Told } from './statistics/sentences.ts'

export type Estimator =
  /** The share of units with `holds` true; undefined: not known for this unit. */
  | { readonly kind: 'proportion'; readonly holds: (sample: UnitSample) => boolean | undefined }
  /** A sum over units divided by another sum over units. */
  | {
      readonly kind: 'ratio'
      readonly of: (sample: UnitSample) => number
      readonly by: (sample: UnitSample) => number
    }
  /** A quantile of the durations of all units; `q` in (0, 1). */
  | { readonly kind: 'quantile'; readonly q: number }

export interface Metric extends Omit<Told, 'name'> {
  /** One line for the documentation. */
  readonly about: string
  readonly estimator: Estimator
}

const quantile = (q: number, name: string): Metric => ({
  about: `${name} of the duration of calls in milliseconds, without calls that agents gave up or got wrong.`,
  words: `the call at the ${name.toLowerCase()} takes`,
  unit: 'ms',
  better: 'lower',
  estimator: { kind: 'quantile', q },
})

/** The metrics of experiments. Any metric may decide an experiment; reports show all metrics. */
export const metrics = {
  task_success: {
    about: 'Share of successful tasks, among tasks with a reported outcome.',
    words: 'tasks succeed',
    unit: 'points',
    better: 'higher',
    estimator: {
      kind: 'proportion',
      holds: ({ outcome }) => (outcome === undefined ? undefined : outcome === 'succeeded'),
    },
  },
  tasks_without_failure: {
    about: 'Share of tasks without a failed tool call.',
    words: 'tasks go without a failed call',
    unit: 'points',
    better: 'higher',
    estimator: { kind: 'proportion', holds: ({ calls, failed }) => (calls === 0 ? undefined : failed === 0) },
  },
  tcsr: {
    about:
      'Tool call success rate: share of calls with a reply not known to be wrong, without calls that agents gave up or got wrong.',
    words: 'calls succeed',
    unit: 'points',
    better: 'higher',
    estimator: { kind: 'ratio', of: ({ good }) => good, by: ({ valid }) => valid },
  },
  eta: {
    about: 'Effective tool availability: like tcsr, but without calls rejected by the gateway.',
    words: 'calls that were sent succeed',
    unit: 'points',
    better: 'higher',
    estimator: { kind: 'ratio', of: ({ good }) => good, by: ({ eligible }) => eligible },
  },
  unchecked: {
    about: 'Share of replies without an output schema to check: unchecked replies count as good.',
    words: 'replies go unchecked',
    unit: 'points',
    better: 'lower',
    estimator: { kind: 'ratio', of: ({ unchecked }) => unchecked, by: ({ returned }) => returned },
  },
  rejected: {
    about: 'Share of calls rejected by the gateway, without calls that agents gave up or got wrong.',
    words: 'calls are rejected',
    unit: 'points',
    better: 'lower',
    estimator: { kind: 'ratio', of: ({ valid, eligible }) => valid - eligible, by: ({ valid }) => valid },
  },
  attempts_per_call: {
    about: 'Attempts at servers per call: the cost of a policy for the servers.',
    words: 'tries per call',
    unit: 'count',
    better: 'lower',
    estimator: { kind: 'ratio', of: ({ attempts }) => attempts, by: ({ calls, assumed }) => calls - assumed },
  },
  mean_ms: {
    about: 'Mean duration of calls in milliseconds, without calls that agents gave up or got wrong.',
    words: 'calls take',
    unit: 'ms',
    better: 'lower',
    estimator: { kind: 'ratio', of: ({ totalMs }) => totalMs, by: ({ valid, assumed }) => valid - assumed },
  },
  p50: quantile(0.5, 'Median'),
  p95: quantile(0.95, '95th percentile'),
  p99: quantile(0.99, '99th percentile'),
} satisfies Readonly<Record<string, Metric>>

export type MetricName = keyof typeof metrics

export const metricNames = Object.keys(metrics) as [MetricName, ...MetricName[]]

export const metricOf = (name: MetricName): Metric & Told => ({ name, ...metrics[name] })
