import { board } from '../board.ts'
import { lines } from '../panels.ts'
import { perSecond, query } from '../query.ts'
import { health } from './gateway/health.ts'
import { now } from './gateway/now.ts'
import { cost } from './gateway/cost.ts'
import { ME } from './gateway/me.ts'

const servers = [
  lines({
    title: 'Servers',
    about: '1 while a server answers, at every gateway.',
    queries: [query(`min by (server) (breakwater_server_up${ME})`, '{{server}}')],
  }),
  lines({
    title: 'Processes of servers',
    about:
      'Processes of stdio servers. With a process for each session, more processes than sessions are a leak.',
    queries: [query(`sum by (server) (breakwater_server_processes${ME})`, '{{server}}')],
  }),
  lines({
    title: 'Other requests',
    about: 'Lists, prompts, resources, completion, by result.',
    unit: 'reqps',
    queries: [perSecond('breakwater_requests_total', ME, ['server', 'result'])],
  }),
  lines({
    title: 'Calls without an intent',
    about: 'Calls without a task. Blast radius and calls per intent ignore such calls.',
    unit: 'reqps',
    queries: [
      query(`sum(rate(breakwater_intents_unattributed_total${ME}[$__rate_interval]))`, 'unattributed'),
    ],
  }),
  lines({
    title: 'Open intents',
    about: 'Unfinished tasks.',
    queries: [query(`breakwater_intents_open${ME}`, '{{instance}}')],
  }),
  lines({
    title: 'Intents cut short',
    about: 'Tasks ended early because too many were open: blast radius and calls per intent become inexact.',
    unit: 'reqps',
    queries: [query(`sum(rate(breakwater_intents_evicted_total${ME}[$__rate_interval]))`, 'cut short')],
  }),
]

const agents = [
  lines({
    title: 'Requests that came too fast',
    about:
      'Requests refused by `gateway.limits`, by limit; other metrics do not count them. Also rejections delayed because a client ignores its retry time.',
    unit: 'reqps',
    width: 12,
    queries: [
      perSecond('breakwater_requests_refused_total', ME, ['limit']),
      query(`sum(rate(breakwater_rejections_held_total${ME}[$__rate_interval]))`, 'held back'),
    ],
  }),
  lines({
    title: 'Requests and connections refused by quotas',
    about: 'Refused by `gateway.limits` and `gateway.sessions`, by limit. For `answers`, the calls have run.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_quota_refused_total', ME, ['limit'])],
  }),
  lines({
    title: 'Connections closed for unread data',
    about:
      'Connections closed because too much unread data waited, by the exceeded bound: `gateway.limits.stalled`, or a part of `gateway.limits.memory`.',
    unit: 'cps',
    width: 12,
    queries: [perSecond('breakwater_unread_closed_total', ME, ['cause'])],
  }),
  lines({
    title: 'Request bodies and replies cut off at a bound',
    about:
      'By the exceeded bound. Each bound is a part of `gateway.limits.memory`, or follows from `stalled` or `maxInFlight`.',
    unit: 'cps',
    width: 12,
    queries: [
      perSecond('breakwater_request_bodies_refused_total', ME, ['cause']),
      query(
        `sum by (limit) (rate(breakwater_unfinished_replies_ended_total${ME}[$__rate_interval]))`,
        'replies {{limit}}',
      ),
    ],
  }),
  lines({
    title: 'Memory held by messages',
    about:
      'Unread replies, events and answers for returning clients, clients’ descriptions of themselves, bodies of unanswered requests, and incomplete replies of servers.',
    unit: 'bytes',
    width: 12,
    queries: [
      query(`sum(breakwater_unread_bytes${ME})`, 'unread'),
      query(`sum(breakwater_replay_bytes${ME})`, 'replay'),
      query(`sum(breakwater_initialize_params_bytes${ME})`, 'initialize params'),
      query(`sum(breakwater_waiting_answer_bytes${ME})`, 'waiting answers'),
      query(`sum(breakwater_request_body_bytes${ME})`, 'bodies'),
      query(`sum(breakwater_unfinished_reply_bytes${ME})`, 'unfinished replies'),
    ],
  }),
  lines({
    title: 'Incoming bodies, dropped events',
    about:
      'Many lasting bodies mean slow clients. Events beyond a tenth of `gateway.limits.memory` are dropped.',
    width: 12,
    queries: [
      query(`sum(breakwater_request_bodies${ME})`, 'bodies'),
      query(`sum(rate(breakwater_replay_dropped_total${ME}[$__rate_interval]))`, 'events dropped per second'),
    ],
  }),
]

const stalls = [
  lines({
    title: 'Event loop stalls',
    about: 'Stalls of the event loop of 100 ms or more, by the work that caused the stall.',
    unit: 'cps',
    width: 8,
    queries: [perSecond('breakwater_event_loop_stalls_total', ME, ['during'])],
  }),
  lines({
    title: 'Time lost in stalls',
    about: 'Seconds per second, by the work that caused the stall.',
    unit: 's',
    width: 8,
    queries: [perSecond('breakwater_event_loop_stalled_seconds_total', ME, ['during'])],
  }),
  lines({
    title: 'Schemas of tools',
    about: 'Refused schemas check nothing; `/admin/servers/{server}` gives the reason for each tool.',
    unit: 'short',
    width: 8,
    queries: [query(`sum by (state) (breakwater_schemas${ME})`, '{{state}}')],
  }),
]

const traces = [
  lines({
    title: 'Spans that arrived',
    about: 'Per second, at the collector of traces.',
    unit: 'cps',
    width: 12,
    queries: [query(`sum(rate(breakwater_trace_spans_exported_total${ME}[$__rate_interval]))`, 'spans')],
  }),
  lines({
    title: 'Spans and recorded calls that were lost',
    about:
      'Lost spans by reason: the collector is down or slow. Missing calls in the recording: the disk is full or slow. Agents’ calls are not affected.',
    unit: 'cps',
    width: 12,
    queries: [
      perSecond('breakwater_trace_spans_dropped_total', ME, ['cause']),
      query(`sum(rate(breakwater_recording_dropped_total${ME}[$__rate_interval]))`, 'recorded calls'),
    ],
  }),
]

export const gateway = board({
  uid: 'gateway',
  title: 'Gateway',
  about: 'The gateway itself: its cost and its health.',
  choices: [
    // Single choice: names of the Node runtime's metrics occur in every Node program.
    { name: 'job', of: 'breakwater_build_info', one: true },
    { name: 'instance', of: 'breakwater_build_info{job="$job"}' },
  ],
  rows: [
    { title: 'Now', panels: now },
    { title: 'Cost', panels: cost },
    { title: 'Servers and intents', panels: servers },
    { title: 'Probes and incidents', panels: health },
    { title: 'Agents', panels: agents },
    { title: 'Event loop and schemas', panels: stalls },
    { title: 'Traces', panels: traces },
  ],
})
