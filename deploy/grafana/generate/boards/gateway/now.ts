import { none, words, type Steps } from '../../colours.ts'
import { stat, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { ME } from './me.ts'

/** Exactly 1 is expected. */
const single: Steps = [
  [null, 'green'],
  [2, 'orange'],
]

const all: Steps = [
  [null, 'orange'],
  [1, 'green'],
]

export const now = [
  stat({
    title: 'Gateways that are away',
    about: 'Targets that Prometheus knows of and cannot scrape.',
    steps: none,
    queries: [query('count(up{job="$job"} == 0) or vector(0)', 'away')],
  }),
  stat({
    title: 'Servers that are up',
    about: 'Of all that are configured.',
    unit: 'percentunit',
    steps: all,
    queries: [query(`avg(breakwater_server_up${ME})`, 'up')],
  }),
  stat({
    title: 'Tools',
    about: 'That agents are offered; and what servers offer that they are not shown, because of its name.',
    queries: [
      query(`sum(max by (server) (breakwater_server_tools${ME}))`, 'tools'),
      query(`sum(max by (server, list) (breakwater_server_unlisted${ME}))`, 'not listed'),
    ],
  }),
  stat({
    title: 'Configs in force',
    about: 'More than one for longer than a rollout takes: gateways have drifted apart.',
    steps: single,
    queries: [query('count(count by (hash) (breakwater_config_info{job="$job"}))', 'configs')],
  }),
  stat({
    title: 'Last reload',
    about: 'Whether it took effect everywhere. Where it was refused, the old config goes on.',
    queries: [query(`min(breakwater_config_reload_success${ME})`, 'ok')],
  }).mappings(words(['refused', 'red'], ['in force', 'green'])),
  stat({
    title: 'Age of the config',
    about: 'Since it was loaded, where that was last.',
    unit: 's',
    queries: [query(`time() - max(breakwater_config_reload_timestamp_seconds${ME})`, 'age')],
  }),
  table({
    title: 'Processes',
    about: 'Gateways, what they run, and how long they have been up: one that is young has been restarted.',
    unit: 's',
    queries: [
      query(
        `sum by (instance, version, node) ((time() - process_start_time_seconds${ME}) ` +
          `* on (job, instance) group_left (version, node) breakwater_build_info${ME})`,
        'up for',
      ),
    ],
  }),
]
