export const TOOLS = 500

export const toolNames: readonly string[] = Array.from(
  { length: TOOLS },
  (_, index) => `look_up_record_${index}`,
)

/** How a call ends: the first word of its text tells the upstream. */
export type Ending = 'good' | 'wrong' | 'tool_error' | 'caller_error' | 'rpc_error' | 'lost'

/** Calls of each tool before measuring, so that all results have series. `lost` and later failures open the breaker. */
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

/** The results of `filling`, as the label `result` of a tool's calls. */
export const results = ['returned', 'caller_error', 'transport_error', 'rpc_error', 'rejected'] as const
