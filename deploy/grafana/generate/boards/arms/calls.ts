import { lines, stack } from '../../panels.ts'
import { perSecond, quantiles, query, traced } from '../../query.ts'
import { AT_SERVER } from './chosen.ts'

const CALLS = 'breakwater_tool_calls_total'

/** Share of the calls of each arm, without callers' own errors and cancellations, which no policy causes. */
function share(results: string): string {
  const rate = (matcher: string) =>
    `sum by (arm) (rate(${CALLS}{server=~"$server",arm=~"$arm",${matcher}}[5m]))`
  const all = rate('result!~"caller_error|cancelled"')
  return `(${rate(`result=~"${results}"`)} or 0 * ${all}) / (${all} > 0)`
}

/** The median, and the 95th percentile. */
const durations = quantiles('breakwater_tool_call_duration_seconds', AT_SERVER, ['arm']).slice(0, 2)

export const calls = [
  lines({
    title: 'Calls',
    about: 'Per second.',
    unit: 'reqps',
    queries: [perSecond(CALLS, AT_SERVER, ['arm'])],
  }),
  lines({
    title: 'Duration',
    about: 'From the arrival of a call to its outcome. Dots are traces.',
    unit: 's',
    queries: traced(durations),
  }),
  stack({
    title: 'Results',
    about: 'By arm and result.',
    unit: 'reqps',
    queries: [perSecond(CALLS, AT_SERVER, ['arm', 'result'])],
  }),
  lines({
    title: 'Returned',
    about: 'Share of calls with a reply.',
    unit: 'percentunit',
    queries: [query(share('returned'), '{{arm}}')],
  }),
  lines({
    title: 'Rejected',
    about: 'Share of calls rejected by a policy.',
    unit: 'percentunit',
    queries: [query(share('rejected'), '{{arm}}')],
  }),
  lines({
    title: 'Failed',
    about: 'Share of calls that were sent and failed.',
    unit: 'percentunit',
    queries: [query(share('timeout|transport_error|rpc_error'), '{{arm}}')],
  }),
  stack({
    title: 'Rejections',
    about: 'Calls, retries and hedges rejected by a policy, by reason.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_rejections_total', AT_SERVER, ['arm', 'reason'])],
  }),
  stack({
    title: 'Partial answers',
    about: 'Results with missing parts: declared, detected, stale, or from a fallback.',
    unit: 'reqps',
    width: 12,
    queries: [perSecond('breakwater_partial_results_total', AT_SERVER, ['arm', 'source'])],
  }),
]
