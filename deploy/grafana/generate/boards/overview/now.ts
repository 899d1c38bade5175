import { stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { SERVER } from './server.ts'

/** Returns a ratio of sums over all chosen servers, instead of an average of their ratios. */
const overall = (part: string, whole: string) =>
  `sum(server:breakwater_attempts_${part}:rate5m${SERVER}) / (sum(server:breakwater_attempts_${whole}:rate5m${SERVER}) > 0)`

export const now = [
  stat({
    title: 'Effective tool availability',
    about:
      'Share of attempts with a reply not known to be wrong. Availability × correctness, over 5 minutes.',
    unit: 'percentunit',
    queries: [query(overall('good', 'eligible'), 'ETA')],
  }),
  stat({
    title: 'Availability',
    about: 'Share of attempts with any reply.',
    unit: 'percentunit',
    queries: [query(overall('returned', 'eligible'), 'availability')],
  }),
  stat({
    title: 'Correctness',
    about:
      'Share of replies not known to be wrong: no errors of the tool, no broken schema, nothing silently missing.',
    unit: 'percentunit',
    queries: [query(overall('good', 'returned'), 'correctness')],
  }),
  stat({
    title: 'Unchecked replies',
    about:
      'Share of replies without an output schema to check. Such replies count as correct: the higher this share, ' +
      'the less correctness proves.',
    unit: 'percentunit',
    queries: [query(overall('unchecked', 'returned'), 'unchecked')],
  }),
  stat({
    title: 'Calls per intent',
    about: 'TCAF: tool calls per task of an agent.',
    queries: [query('gateway:breakwater_tcaf:ratio_rate5m', 'TCAF')],
  }),
  stat({
    title: 'Blast radius',
    about: 'Share of tasks with at least one failed call.',
    unit: 'percentunit',
    queries: [query('gateway:breakwater_blast_radius:ratio_rate5m', 'blast radius')],
  }),
]
