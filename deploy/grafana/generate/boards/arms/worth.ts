import { lines } from '../../panels.ts'
import { recorded } from './chosen.ts'

export const worth = [
  lines({
    title: 'Effective availability',
    about: 'Share of unrejected calls with a result not known to be wrong, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_eta')],
  }),
  lines({
    title: 'Calls that succeeded',
    about: 'TCSR: the same share of all calls, rejected calls included.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('tcsr')],
  }),
  lines({
    title: 'Availability',
    about: 'Share of calls with any reply, over all servers.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_availability')],
  }),
  lines({
    title: 'Correctness',
    about: 'Shares of replies not known to be wrong, and of unchecked replies.',
    unit: 'percentunit',
    width: 6,
    queries: [recorded('call_correctness'), recorded('call_unchecked', ' not checked')],
  }),
]
