import { type Options, seeded } from '../../../shared/arguments.ts'

/** Options of `breakwater demo --live`. They have their own file, so the help can be shown without loading the demo. */
export const liveOptions = {
  live: { kind: 'flag', about: 'plays this demo' },
  duration: {
    kind: 'duration',
    min: 4_000,
    value: 'DURATION',
    default: '60s',
    about: 'length: a quarter without faults, half with faults, a quarter without',
  },
  seed: seeded('the same seed gives the same tasks and draws'),
  'no-policies': { kind: 'flag', about: 'plays it without gates, retries, timeouts and all other policies' },
} as const satisfies Options
