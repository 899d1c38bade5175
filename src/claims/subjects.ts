/** The unit of a number: `share` in [0, 1], `ms` in milliseconds, `state` 1 for up and 0 for down. */
export type Unit = 'ms' | 'share' | 'count' | 'state'

/** The subjects of claims, with unit and better direction. */
export const subjects = {
  p50: { unit: 'ms', better: 'lower', about: 'what 50 % of the calls do not take longer than' },
  p90: { unit: 'ms', better: 'lower', about: 'what 90 % of the calls do not take longer than' },
  p95: { unit: 'ms', better: 'lower', about: 'what 95 % of the calls do not take longer than' },
  p99: { unit: 'ms', better: 'lower', about: 'what 99 % of the calls do not take longer than' },
  mean: { unit: 'ms', better: 'lower', about: 'how long calls take on average' },
  tcsr: { unit: 'share', better: 'higher', about: 'share of the calls that go well' },
  eta: { unit: 'share', better: 'higher', about: 'the same without calls that the gateway rejects' },
  error_ratio: { unit: 'share', better: 'lower', about: 'share of the calls that go wrong' },
  rejected_ratio: { unit: 'share', better: 'lower', about: 'share of the calls that the gateway rejects' },
  blast_radius: { unit: 'share', better: 'lower', about: 'share of the tasks of which a call goes wrong' },
  attempts_per_call: { unit: 'count', better: 'lower', about: 'tries at the servers, by calls' },
  retries: { unit: 'count', better: 'lower', about: 'calls that were sent again' },
  masked: { unit: 'count', better: 'higher', about: 'faults that the mesh made good' },
  delayed: { unit: 'count', better: 'higher', about: 'faults that cost time only' },
  surfaced: { unit: 'count', better: 'lower', about: 'faults that agents were told of' },
  escaped: { unit: 'count', better: 'lower', about: 'faults that agents saw as good answers' },
  not_reached: { unit: 'count', better: 'lower', about: 'faults of calls that were never sent' },
  uptime: { unit: 'ms', better: 'higher', about: 'for how long a server has been up' },
  status: { unit: 'state', better: 'higher', about: 'whether a server is up' },
  probe_failures: { unit: 'count', better: 'lower', about: 'failed probes in a row, up to the latest one' },
} as const satisfies Readonly<
  Record<string, { readonly unit: Unit; readonly better: 'lower' | 'higher'; readonly about: string }>
>

export type Subject = keyof typeof subjects
