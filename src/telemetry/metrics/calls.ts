import { counter, gauge, histogram } from '../../mesh/metric-spec.ts'

const CALL_SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
const OVERHEAD_SECONDS = [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]
const CALLS_PER_INTENT = [1, 2, 3, 5, 8, 13, 21, 34, 55, 100, 200, 500]

/** The metrics of calls, of attempts at servers, and of agents' tasks (intents). */
export const calls = {
  toolCalls: counter(
    'tool_calls_total',
    'Tool calls of agents, by result.',
    ['server', 'tool', 'result', 'arm'],
    'tools × 7 results, of which 5 begin at 0, × arms',
  ),
  toolCallVerdicts: counter(
    'tool_call_verdicts_total',
    'Tool calls of agents, by outcome and, if a reply came, by its verdict.',
    ['server', 'tool', 'outcome', 'verdict', 'arm'],
    'tools × 15 pairs of outcome and verdict, of which 9 begin at 0, × arms',
  ),
  toolCallDuration: histogram(
    'tool_call_duration_seconds',
    'Duration of tool calls of agents from arrival to outcome, in seconds.',
    ['server', 'tool', 'arm'],
    'tools × 17 × arms',
    CALL_SECONDS,
  ),
  overhead: histogram(
    'gateway_overhead_seconds',
    'Time of a tool call in the gateway itself, without waits and attempts at servers, in seconds.',
    [],
    '14',
    OVERHEAD_SECONDS,
  ),
  requests: counter(
    'requests_total',
    'Requests to servers other than tool calls, by result.',
    ['server', 'result'],
    'servers × 7 results',
  ),
  attempts: counter(
    'upstream_attempts_total',
    'Attempts of tool calls at a server, by outcome and, if a reply came, by its verdict.',
    ['server', 'tool', 'outcome', 'verdict', 'arm'],
    'tools × 14 pairs of outcome and verdict, of which 8 begin at 0, × arms',
  ),
  intents: counter(
    'intents_total',
    'Finished tasks of agents, by whether a call failed (`outcome`) and by the source of the task. A task with calls in arms of several experiments counts in the first arm.',
    ['outcome', 'arm', 'source'],
    '2 outcomes × arms × 6 sources',
  ),
  intentToolCalls: histogram(
    'intent_tool_calls',
    'Tool calls per finished task of an agent.',
    ['arm', 'source'],
    'arms × 6 sources × 15',
    CALLS_PER_INTENT,
  ),
  intentsUnattributed: counter('intents_unattributed_total', 'Tool calls without a known task.', [], '1'),
  intentsEvicted: counter(
    'intents_evicted_total',
    'Tasks of agents that were ended early, because too many were open.',
    [],
    '1',
  ),
  intentOutcomes: counter(
    'intent_outcomes_total',
    'Tasks of agents with a reported outcome, by outcome and by whether a call failed (`calls`).',
    ['outcome', 'calls', 'arm', 'source'],
    '3 outcomes × 2 × arms × 6 sources',
  ),
  intentOutcomesUnlinked: counter(
    'intent_outcomes_unlinked_total',
    'Ignored reports of task outcomes, by reason: task unknown, task ambiguous, or an earlier report contradicts.',
    ['reason'],
    '3 reasons',
  ),
  intentsOpen: gauge('intents_open', 'Open tasks of agents.', [], '1'),
  underWay: gauge('inflight', 'Requests to servers under way.', ['server'], 'servers'),
} as const
