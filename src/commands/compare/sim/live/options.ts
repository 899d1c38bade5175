import { type Options, seeded } from '../../../shared/arguments.ts'

/** Options of `breakwater demo --live`, kept apart: showing the help need not load the demo itself. */
export const liveOptions = {
  live: { kind: 'flag', about: 'this one' },
  duration: {
    kind: 'duration',
    min: 4_000,
    value: 'DURATION',
    default: '60s',
    about: 'how long; half of it with faults, a quarter before and after them',
  },
  seed: seeded('the same seed gives the same tasks and draws'),
  'no-policies': { kind: 'flag', about: 'the same without gates, retries, timeouts and all others' },
} as const satisfies Options
