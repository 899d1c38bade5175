/** Fates of a try at a tool, or of a call without tries: whether a reply came, and whether the fate hurts the task. */
export const fates = {
  correct: { returned: true, hurts: false },
  unchecked: { returned: true, hurts: false },
  partial_declared: { returned: true, hurts: false },
  schema_invalid: { returned: true, hurts: true },
  tool_error: { returned: true, hurts: true },
  rpc_error: { returned: false, hurts: true },
  caller_error: { returned: false, hurts: false },
  transport_error: { returned: false, hurts: true },
  timeout: { returned: false, hurts: true },
  cancelled: { returned: false, hurts: false },
  rejected: { returned: false, hurts: true },
} as const

export type Fate = keyof typeof fates

export type Tool = 'price' | 'stock' | 'note' | 'audit' | 'slow'

export interface ScriptedCall {
  readonly tool: Tool
  /** The fate of each try; the last fate is the call's. Empty if the gateway rejects the call. */
  readonly tries: readonly Exclude<Fate, 'rejected'>[]
}

export interface Task {
  /** Where the agent names the task; `nowhere` names none. */
  readonly named: 'header' | 'baggage' | 'nowhere'
  /** Calls, made one after another. */
  readonly calls: readonly ScriptedCall[]
}

const call = (tool: Tool, ...tries: ScriptedCall['tries']): ScriptedCall => ({ tool, tries })

/** Concurrent tasks of agents. All expected figures are computed from this script. */
export const script: readonly Task[] = [
  {
    named: 'header',
    calls: [
      call('price', 'correct'),
      // A retry masks the failure: the attempt failed, the call did not.
      call('stock', 'transport_error', 'correct'),
      call('note', 'unchecked'),
    ],
  },
  {
    named: 'header',
    calls: [
      call('price', 'correct'),
      call('price', 'correct'),
      call('price', 'schema_invalid'),
      call('price', 'caller_error'),
    ],
  },
  // Two tools without a good result: one replies wrongly, one never replies.
  {
    named: 'baggage',
    calls: [call('audit', 'schema_invalid'), call('audit', 'tool_error'), call('note', 'partial_declared')],
  },
  { named: 'header', calls: [call('slow', 'timeout'), call('price', 'correct')] },
  { named: 'baggage', calls: [call('price'), call('price', 'correct')] },
  { named: 'baggage', calls: [call('note', 'cancelled'), call('note', 'unchecked')] },
  { named: 'header', calls: [call('price', 'caller_error')] },
  {
    named: 'header',
    calls: [
      call('stock', 'transport_error', 'rpc_error'),
      call('stock', 'correct'),
      call('note', 'rpc_error'),
    ],
  },
  { named: 'nowhere', calls: [call('price', 'correct'), call('stock', 'rpc_error', 'correct')] },
]
