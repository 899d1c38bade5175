/** How many tools the upstream of `scrape.ts` has. */
export const TOOLS = 500

export const toolNames: readonly string[] = Array.from(
  { length: TOOLS },
  (_, index) => `look_up_record_${index}`,
)

/** How a call can end: the first word of its text tells the upstream. */
export type Ending = 'good' | 'wrong' | 'tool_error' | 'caller_error' | 'rpc_error' | 'lost'

/**
 * What each tool goes through before anything is measured, so that it has series for all of it. `lost` and what
 * follows are failures in a row: the last of them finds the breaker open.
 */
export const filling: readonly Ending[] = [
  'good',
  'wrong',
  'tool_error',
  'caller_error',
  'lost',
  'rpc_error',
  'rpc_error',
  'rpc_error',
  'rpc_error',
  'good',
]

/** What came of `filling`, as the label `result` of a tool's calls. */
export const results = ['returned', 'caller_error', 'transport_error', 'rpc_error', 'rejected'] as const
