import type { Exceeded } from './envelope.ts'

/** Stable codes of refusals, for agents. */
export const refusalCodes = [
  'outside_envelope',
  'needs_approval',
  'approval_used',
  'plan_changed',
  'expired',
  'wrong_gateway',
  'busy',
  'killed',
  'protected',
  'clock_back',
  'budget_spent',
  'suspended',
  'not_found',
  'not_allowed',
  'invalid',
  'internal',
] as const

export type RefusalCode = (typeof refusalCodes)[number]

/** A refused request of an agent or a person. Nothing was injected. */
export interface Refusal {
  readonly ok: false
  readonly code: RefusalCode
  readonly message: string
  /** Whether the unchanged request may succeed later. */
  readonly repeat: 'never' | 'same' | 'later'
  readonly retryAfterMs?: number
  readonly exceeded?: readonly Exceeded[]
  /** A command for a person, or a tool for the agent, that helps. */
  readonly see?: string
}

export const refusal = (
  code: RefusalCode,
  message: string,
  more: Partial<Omit<Refusal, 'ok' | 'code' | 'message'>> = {},
): Refusal => ({ ok: false, code, message, repeat: 'never', ...more })
