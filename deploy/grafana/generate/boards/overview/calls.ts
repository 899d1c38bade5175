import { lines, stack } from '../../panels.ts'
import { perSecond, quantiles, traced } from '../../query.ts'
import { SERVER } from './server.ts'

const TOOLS = 'breakwater_tool_calls_total'

export const calls = [
  lines({
    title: 'Calls',
    about: 'Tool calls of agents per second.',
    unit: 'reqps',
    queries: [perSecond(TOOLS, SERVER, ['server'])],
  }),
  stack({
    title: 'Results of calls',
    about: 'Results as agents see them: after retries, fallbacks and rejections.',
    unit: 'reqps',
    queries: [perSecond(TOOLS, SERVER, ['result'])],
  }),
  lines({
    title: 'Duration',
    about: 'From the arrival of a call to its outcome. Dots are traces.',
    unit: 's',
    queries: traced(quantiles('breakwater_tool_call_duration_seconds', SERVER)),
  }),
]
