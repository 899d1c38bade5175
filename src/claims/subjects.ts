/** The unit of a number: `share` in [0, 1], `ms` in milliseconds, `state` 1 for up and 0 for down. */
export type Unit = 'ms' | 'share' | 'count' | 'state'

/** The subjects of claims, with unit and better direction. */
export const subjects = {
  p50: { unit: 'ms', better: 'lower', about: '50th percentile of the duration of calls' },
  p90: { unit: 'ms', better: 'lower', about: '90th percentile of the duration of calls' },
  p95: { unit: 'ms', better: 'lower', about: '95th percentile of the duration of calls' },
  p99: { unit: 'ms', better: 'lower', about: '99th percentile of the duration of calls' },
  mean: { unit: 'ms', better: 'lower', about: 'mean duration of calls' },
  tcsr: { unit: 'share', better: 'higher', about: 'share of the calls that go well' },
  eta: { unit: 'share', better: 'higher', about: 'tcsr without calls rejected by the gateway' },
  error_ratio: { unit: 'share', better: 'lower', about: 'share of the calls that go wrong' },
  rejected_ratio: { unit: 'share', better: 'lower', about: 'share of the calls that the gateway rejects' },
  blast_radius: { unit: 'share', better: 'lower', about: 'share of the tasks with a failed call' },
  attempts_per_call: { unit: 'count', better: 'lower', about: 'attempts at the servers per call' },
  retries: { unit: 'count', better: 'lower', about: 'calls sent again' },
  masked: { unit: 'count', better: 'higher', about: 'faults repaired by the mesh' },
  delayed: { unit: 'count', better: 'higher', about: 'faults that cost time only' },
  surfaced: { unit: 'count', better: 'lower', about: 'faults reported to agents' },
  escaped: { unit: 'count', better: 'lower', about: 'faults that agents saw as good answers' },
  not_reached: { unit: 'count', better: 'lower', about: 'faults of calls that were never sent' },
  uptime: { unit: 'ms', better: 'higher', about: 'time since a server came up' },
  status: { unit: 'state', better: 'higher', about: 'whether a server is up' },
  probe_failures: { unit: 'count', better: 'lower', about: 'failed probes in a row, up to the latest one' },
} as const satisfies Readonly<
  Record<string, { readonly unit: Unit; readonly better: 'lower' | 'higher'; readonly about: string }>
>

export type Subject = keyof typeof subjects
