import { counter, gauge } from './spec.ts'

/** The part of the table that is about servers, sessions and the gateway itself. */
export const gateway = {
  sessionRecoveries: counter(
    'session_recoveries_total',
    'Calls for which a lost session was opened again.',
    ['server'],
    'servers',
  ),
  sessions: gauge('sessions', 'Sessions of agents that are open.', [], '1'),
  requestsRefused: counter(
    'requests_refused_total',
    'Requests of agents that came faster than `gateway.limits` allows, by the limit.',
    ['limit'],
    '2 limits',
  ),
  quotaRefused: counter(
    'quota_refused_total',
    'Requests of agents that were refused because all clients, or one of them, had too much open, by the limit.',
    ['limit'],
    '12 limits',
  ),
  unreadClosed: counter(
    'unread_closed_total',
    'Connections of clients that were closed because they did not read, by what was exceeded.',
    ['cause'],
    '3 causes',
  ),
  unreadBytes: gauge('unread_bytes', 'What waits for clients that have not read it yet, in bytes.', [], '1'),
  replayBytes: gauge('replay_bytes', 'Events that are kept for clients that come back, in bytes.', [], '1'),
  replayDropped: counter(
    'replay_dropped_total',
    'Events that were dropped before their time because all sessions together kept too many.',
    [],
    '1',
  ),
  bodies: gauge('request_bodies', 'Bodies of requests that are on their way.', [], '1'),
  bodyBytes: gauge('request_body_bytes', 'What has come of such bodies, in bytes.', [], '1'),
  bodiesRefused: counter(
    'request_bodies_refused_total',
    'Bodies of requests that were not read to their end, by what was exceeded.',
    ['cause'],
    '3 causes',
  ),
  connectionsRefused: counter(
    'connections_refused_total',
    'Connections of agents that were closed at once because there were too many.',
    [],
    '1',
  ),
  serverUp: gauge('server_up', '1 while a server answers, else 0.', ['server'], 'servers'),
  serverTools: gauge('server_tools', 'Tools that a server offers to agents.', ['server'], 'servers'),
  serverUnlisted: gauge(
    'server_unlisted',
    'What a server offers and agents are not shown, because its name is too long or holds control characters, by list.',
    ['server', 'list'],
    'servers × 4 lists',
  ),
  serverProcesses: gauge(
    'server_processes',
    'Processes of a stdio server, with those that are being started.',
    ['server'],
    'stdio servers',
  ),
  configInfo: gauge('config_info', '1, labelled with the hash of the config in force.', ['hash'], '1'),
  configReloadSuccess: gauge(
    'config_reload_success',
    '1 if the last reload took effect, 0 if the old config went on.',
    [],
    '1',
  ),
  configReloadTimestamp: gauge(
    'config_reload_timestamp_seconds',
    'When the config in force was loaded, in seconds since the Unix epoch.',
    [],
    '1',
  ),
  spansExported: counter('trace_spans_exported_total', 'Spans that the collector took.', [], '1'),
  spansDropped: counter('trace_spans_dropped_total', 'Spans that were lost, by why.', ['cause'], '3 causes'),
  stalls: counter(
    'event_loop_stalls_total',
    'Times that the event loop, and with it everything, stood still for 100 ms or more, by what was at work meanwhile.',
    ['during'],
    '8 kinds of work',
  ),
  stalledSeconds: counter(
    'event_loop_stalled_seconds_total',
    'How long the event loop stood still in these stalls, by what was at work meanwhile.',
    ['during'],
    '8 kinds of work',
  ),
  buildInfo: gauge(
    'build_info',
    '1, labelled with the versions of the gateway and of Node.',
    ['version', 'node'],
    '1',
  ),
} as const
