import { stat } from '../../panels.ts'
import { query } from '../../query.ts'
import { SERVER } from './server.ts'

/** The ratio over all chosen servers: never an average of averages. */
const overall = (part: string, whole: string) =>
  `sum(server:breakwater_attempts_${part}:rate5m${SERVER}) / (sum(server:breakwater_attempts_${whole}:rate5m${SERVER}) > 0)`

export const now = [
  stat({
    title: 'Effective tool availability',
    about:
      'Attempts that came back and are not known to be wrong. Availability × correctness, over 5 minutes.',
    unit: 'percentunit',
    queries: [query(overall('good', 'eligible'), 'ETA')],
  }),
  stat({
    title: 'Availability',
    about: 'Attempts that came back at all.',
    unit: 'percentunit',
    queries: [query(overall('returned', 'eligible'), 'availability')],
  }),
  stat({
    title: 'Correctness',
    about:
      'Replies that are not known to be wrong: no errors of the tool, no broken schema, nothing silently missing.',
    unit: 'percentunit',
    queries: [query(overall('good', 'returned'), 'correctness')],
  }),
  stat({
    title: 'Replies nobody could check',
    about:
      'Share of replies without an output schema that a gateway could check. They count as correct: the higher this share, ' +
      'the less correctness proves.',
    unit: 'percentunit',
    queries: [query(overall('unchecked', 'returned'), 'unchecked')],
  }),
  stat({
    title: 'Calls per intent',
    about: 'TCAF: how many tool calls a task of an agent makes.',
    queries: [query('gateway:breakwater_tcaf:ratio_rate5m', 'TCAF')],
  }),
  stat({
    title: 'Blast radius',
    about: 'Share of tasks that met at least one call that failed.',
    unit: 'percentunit',
    queries: [query('gateway:breakwater_blast_radius:ratio_rate5m', 'blast radius')],
  }),
]
