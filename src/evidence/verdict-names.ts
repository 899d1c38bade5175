/** Verdicts on a run, the best first. */
export const verdicts = ['passed', 'held (weak)', 'failed', 'no evidence'] as const
export type Verdict = (typeof verdicts)[number]

/** Reasons why a run proves nothing. */
export const reasonNames = [
  /** Fewer than 5 injections took effect. */
  'no_effective_fault',
  /** The treatment had calls in less than 80 % of the seconds in which a fault acted. */
  'not_overlapping',
  /** The treatment had fewer than 30 calls in a stage. */
  'below_floor',
  /** The steady state did not hold before the faults. */
  'unsteady_before',
  /** The calls without faults broke the same claims. */
  'control_failed_too',
  'engine_error',
  /** The record lacks a part of the run. */
  'journal_gap',
  /** No reachable value breaks a claim or the gate. */
  'loose_tolerance',
  /** Somebody, or a limit that is not the gate, ended the run. */
  'stopped',
] as const
export type Reason = (typeof reasonNames)[number]
