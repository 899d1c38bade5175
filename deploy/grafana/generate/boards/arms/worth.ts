import { lines } from '../../panels.ts'
import { recorded } from './chosen.ts'

export const worth = [
  lines({
    title: 'Effective availability',
    about:
      'Share of calls with a result that is not known to be wrong, of those that were not rejected, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_eta')],
  }),
  lines({
    title: 'Calls that succeeded',
    about: 'TCSR: the same of all calls, those included that the gateway rejected.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('tcsr')],
  }),
  lines({
    title: 'Availability',
    about: 'Share of calls that came back at all, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_availability')],
  }),
  lines({
    title: 'Correctness',
    about:
      'Of calls that came back, those that are not known to be wrong, and those that nobody could check.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_correctness'), recorded('call_unchecked', ' not checked')],
  }),
]
