import { none, words, type Steps } from '../../colours.ts'
import { stat, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { ME } from './me.ts'

/** Colours of a count that should be exactly 1. */
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
    title: 'Unreachable gateways',
    about: 'Targets that Prometheus knows but cannot scrape.',
    steps: none,
    queries: [query('count(up{job="$job"} == 0) or vector(0)', 'away')],
  }),
  stat({
    title: 'Servers that are up',
    about: 'Share of all configured servers.',
    unit: 'percentunit',
    steps: all,
    queries: [query(`avg(breakwater_server_up${ME})`, 'up')],
  }),
  stat({
    title: 'Tools',
    about: 'Tools offered to agents, and tools hidden because of their names.',
    queries: [
      query(`sum(max by (server) (breakwater_server_tools${ME}))`, 'tools'),
      query(`sum(max by (server, list) (breakwater_server_unlisted${ME}))`, 'not listed'),
    ],
  }),
  stat({
    title: 'Configs in force',
    about: 'More than one config for longer than a rollout means that gateways have drifted apart.',
    steps: single,
    queries: [query('count(count by (hash) (breakwater_config_info{job="$job"}))', 'configs')],
  }),
  stat({
    title: 'Last reload',
    about:
      '`in force` if the last reload took effect at every gateway. A gateway that refused the reload keeps its old config.',
    queries: [query(`min(breakwater_config_reload_success${ME})`, 'ok')],
  }).mappings(words(['refused', 'red'], ['in force', 'green'])),
  stat({
    title: 'Age of the config',
    about: 'Time since the newest load of a config.',
    unit: 's',
    queries: [query(`time() - max(breakwater_config_reload_timestamp_seconds${ME})`, 'age')],
  }),
  table({
    title: 'Processes',
    about: 'Gateways with version and uptime: a short uptime means a restart.',
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
